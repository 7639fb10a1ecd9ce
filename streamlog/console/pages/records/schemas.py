"""The schema file that a page decodes values with: uploaded to the page, forgotten with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from streamlog.console.actions import refused
from streamlog.console.decoding import SCHEMA_BYTES_MAX, Decode, ProtobufSchema, SchemaError, avro_decoder


class SchemaChoice:
    def __init__(self) -> None:
        self.decode: Decode | None = None
        self._changed: list[Callable[[], Awaitable[None]]] = []
        self._protobuf: ProtobufSchema | None = None
        with ui.row().classes("items-end gap-3") as self.element:
            self._upload = ui.upload(
                label="Avro (.avsc) or Protobuf (descriptor set)",
                auto_upload=True,
                max_file_size=SCHEMA_BYTES_MAX,
                max_files=1,
                on_upload=self._given,
                on_rejected=lambda: refused(f"A schema file has at most {SCHEMA_BYTES_MAX:,} bytes."),
            ).props('accept="*"')
            self._message = ui.select([], label="Message", on_change=self._chosen).classes("w-64")
            self._message.set_visibility(False)

    def on_change(self, handler: Callable[[], Awaitable[None]]) -> None:
        self._changed.append(handler)

    async def _given(self, event: Any) -> None:
        data = await event.file.read()
        self._upload.reset()
        try:
            if data.lstrip()[:1] in (b"{", b"[", b'"'):
                self._protobuf, self.decode = None, avro_decoder(data)
                self._message.set_visibility(False)
                await self._notify()
                return
            self._protobuf = ProtobufSchema(data)
        except SchemaError as error:
            refused(str(error))
            return
        self._message.set_options(list(self._protobuf.messages), value=self._protobuf.messages[0])
        self._message.set_visibility(True)
        await self._chosen()

    async def _chosen(self) -> None:
        if self._protobuf is not None and self._message.value:
            self.decode = self._protobuf.decoder(self._message.value)
            await self._notify()

    async def _notify(self) -> None:
        for handler in self._changed:
            await handler()
