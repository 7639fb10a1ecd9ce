"""The process that decodes by schemas: frames from standard input, answers to standard output, in order.

    frame       length (4 bytes, big-endian), a message in MessagePack
    Load        the schema that the next values are decoded by -> SchemaLoaded
    Value       -> Shown

A request that uses more than CPU_S of the processor ends the process: SIGPROF's default action, which works in C code
too. Memory is limited by RLIMIT_AS. It ends with its standard input, so never outlives the console.

Run as `python -m streamlog.console.decoding.worker`.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Sequence
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from streamlog.console.decoding.schemas import Decode, SchemaError, decoder_of, is_avro, messages_of
from streamlog.console.decoding.text import DECODED_BYTES_MAX, Shown, as_text, document_text, too_large

CPU_S: Final = 1.0
MEMORY_BYTES_MAX: Final = 1 << 30
FRAME_BYTES_MAX: Final = 4 << 20
LENGTH_BYTES: Final = 4


class Load(Struct, tag=True):
    """`message`: of a Protobuf schema; empty: list them."""

    schema: bytes
    message: str = ""


class SchemaLoaded(Struct, tag=True):
    messages: Sequence[str] = ()
    problem: str = ""


class Value(Struct, tag=True):
    data: bytes


class ShownValue(Struct, tag=True):
    text: str
    problem: str = ""


Request = Load | Value
Answer = SchemaLoaded | ShownValue


class SchemaWorker:
    """The worker without its process."""

    def __init__(self) -> None:
        self._decode: Decode | None = None

    def answer(self, request: Request) -> Answer:
        return self._load(request) if isinstance(request, Load) else self._shown(request.data)

    def _load(self, request: Load) -> SchemaLoaded:
        self._decode = None
        try:
            if not request.message and not is_avro(request.schema):
                return SchemaLoaded(messages_of(request.schema))
            self._decode = decoder_of(request.schema, request.message)
        except SchemaError as error:
            return SchemaLoaded(problem=str(error))
        except MemoryError:
            return SchemaLoaded(problem="The schema takes too much memory.")
        return SchemaLoaded()

    def _shown(self, data: bytes) -> ShownValue:
        try:
            if len(data) > DECODED_BYTES_MAX:
                raise ValueError(too_large())
            if self._decode is None:
                raise ValueError("no schema")
            found = document_text(self._decode(data), len(data))
        except MemoryError:
            found = Shown(as_text(data, "text").text, "not decoded: it takes too much memory")
        except (ValueError, RecursionError) as problem:
            found = Shown(as_text(data, "text").text, f"not of the schema: {problem}"[:300])
        return ShownValue(found.text, found.problem)


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _import_libraries()
    _serve(sys.stdin.buffer, answers)


def _import_libraries() -> None:
    """Not within the first request's time."""
    import google.protobuf.json_format
    import google.protobuf.message_factory  # noqa: F401

    try:
        import fastavro  # noqa: F401
    except ModuleNotFoundError:
        pass  # reported where it is needed


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    worker = SchemaWorker()
    decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
    while len(header := requests.read(LENGTH_BYTES)) == LENGTH_BYTES:
        request = decoder.decode(requests.read(int.from_bytes(header, "big")))
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        data = msgspec.msgpack.encode(worker.answer(request))
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        answers.flush()


if __name__ == "__main__":
    main()
