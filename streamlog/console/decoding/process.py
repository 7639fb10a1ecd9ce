"""Calls the worker (`worker`): started for the first schema, one for all pages, replaced when it was ended.

    value that fits              text
    worker killed by a value     that value is shown as text, with the reason; the next one gets a new worker
    FAILURES_MAX, BATCH_S        the rest of the page's values are shown as text

Pages take turns, a batch each, so one page delays another by BATCH_S and one value at most. One event loop.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from streamlog.aio.timeouts import timeout
from streamlog.console.decoding.schemas import SCHEMA_BYTES_MAX, SchemaError
from streamlog.console.decoding.text import DECODED_BYTES_MAX, Shown, as_text, too_large
from streamlog.console.decoding.worker import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    Answer,
    Load,
    Request,
    SchemaLoaded,
    ShownValue,
    Value,
)

ANSWER_S: Final = 30.0
"""Wall time: the worker itself ends after a much shorter time of the processor."""
BATCH_S: Final = 10.0
FAILURES_MAX: Final = 3
_DECODER: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)


class Schema(Struct, frozen=True):
    data: bytes
    message: str = ""  # of a Protobuf schema


class _WorkerEnded(Exception):
    """The message: why."""


class SchemaDecoder:
    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._loaded: Schema | None = None

    async def messages(self, schema: bytes) -> Sequence[str]:
        """SchemaError. Of a Protobuf schema; empty: an Avro schema."""
        if len(schema) > SCHEMA_BYTES_MAX:
            raise SchemaError(f"The schema file has {len(schema):,} bytes; the limit is {SCHEMA_BYTES_MAX:,}.")
        async with self._turn:
            try:
                return await self._load(Schema(schema))
            except _WorkerEnded as ended:
                raise SchemaError(f"The schema cannot be used: {ended}.") from None

    async def shown(self, schema: Schema, values: Sequence[bytes | None]) -> list[Shown]:
        """One for each value."""
        found: list[Shown] = []
        failures: list[str] = []
        async with self._turn:
            deadline_s = self._now_s() + BATCH_S
            for data in values:
                problem = ""
                if len(data or b"") > DECODED_BYTES_MAX:
                    problem = too_large()
                elif len(failures) >= FAILURES_MAX:
                    problem = f"not decoded: {FAILURES_MAX} values before were not either ({failures[-1]})"
                elif self._now_s() > deadline_s:
                    problem = f"not decoded: the values before took {BATCH_S:g} s"
                elif data is not None:
                    try:
                        found.append(await self._value(schema, data))
                        continue
                    except (_WorkerEnded, SchemaError) as error:
                        failures.append(str(error))
                        problem = f"not decoded: {error}"
                plain = await asyncio.to_thread(as_text, data, "text")
                found.append(Shown(plain.text, problem[:300]))
        return found

    async def close(self) -> None:
        await self._end()

    async def _load(self, schema: Schema) -> Sequence[str]:
        self._loaded = None
        answer = await self._call(Load(schema.data, schema.message))
        if not isinstance(answer, SchemaLoaded):
            raise _WorkerEnded(await self._end())
        if answer.problem:
            raise SchemaError(answer.problem)
        self._loaded = schema
        return answer.messages

    async def _value(self, schema: Schema, data: bytes) -> Shown:
        if self._loaded != schema:
            await self._load(schema)
        answer = await self._call(Value(data))
        if not isinstance(answer, ShownValue):
            raise _WorkerEnded(await self._end())
        return Shown(answer.text, answer.problem)

    async def _call(self, request: Request) -> Answer:
        if self._process is None:
            self._process = await self._started()
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        data = msgspec.msgpack.encode(request)
        try:
            async with timeout(ANSWER_S):
                stdin.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
                await stdin.drain()
                length = int.from_bytes(await stdout.readexactly(LENGTH_BYTES), "big")
                if length > FRAME_BYTES_MAX:
                    raise ValueError("too large an answer")
                return _DECODER.decode(await stdout.readexactly(length))
        except (TimeoutError, asyncio.IncompleteReadError, OSError, ValueError, msgspec.MsgspecError):
            raise _WorkerEnded(await self._end()) from None
        except asyncio.CancelledError:
            await self._end()  # its answer would be taken for that of the next request
            raise

    async def _started(self) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "streamlog.console.decoding.worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the console, which ends it
            )
        except OSError as error:
            raise _WorkerEnded(f"the decoder cannot be started: {error.strerror}") from None

    async def _end(self) -> str:
        """Why it ended."""
        process, self._process, self._loaded = self._process, None, None
        if process is None:
            return ""
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with timeout(0.5):  # it may have ended by itself, and then has a reason
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if process.returncode == -signal.SIGPROF:
            return "it takes too long"
        if process.returncode == -signal.SIGKILL:
            return f"no answer within {ANSWER_S:g} s"
        return "it ends the decoder"
