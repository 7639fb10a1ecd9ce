"""The schema file that a page decodes values with: uploaded to the page, forgotten with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from streamlog.console.decoding.process import Schema, SchemaDecoder
from streamlog.console.decoding.schemas import SCHEMA_BYTES_MAX, SchemaError
from streamlog.console.widgets.actions import refused


class SchemaChoice:
    def __init__(self, decoder: SchemaDecoder) -> None:
        self.schema: Schema | None = None
        self._decoder = decoder
        self._changed: list[Callable[[], Awaitable[None]]] = []
        self._descriptors = b""
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
            messages = await self._decoder.messages(data)
        except SchemaError as error:
            refused(str(error))
            return
        if messages:
            self._descriptors = data
            self._message.set_options(list(messages), value=messages[0])  # calls _chosen where the value changes
        self._message.set_visibility(bool(messages))
        await self._use(Schema(data, messages[0] if messages else ""))

    async def _chosen(self) -> None:
        if self._message.visible and self._message.value:
            await self._use(Schema(self._descriptors, self._message.value))

    async def _use(self, schema: Schema) -> None:
        if schema == self.schema:
            return
        self.schema = schema
        for handler in self._changed:
            await handler()
