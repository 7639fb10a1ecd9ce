"""Keys and values of a producer's records into bytes, before anything of a record is taken.

    send     the caller's thread loads what a format needs (`pending`), and waits for it
    enqueue, send_many of AsyncProducer     a thread loads it; `send`, which never waits, refuses the record instead

Whatever a format raises is a SerializationError of that record alone. None is not serialized.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from streamlog.client.serialization.formats import GivenSerializer, Serialize, serializer_of
from streamlog.client.serialization.pending import LOADS_MAX, Pending
from streamlog.errors import SerializationError, StreamlogError

Encoded = tuple[bytes | None, bytes | None]
Columns = tuple[Sequence[bytes | None], Sequence[bytes | None] | None]


class RecordSerializers:
    def __init__(self, key: Serialize | None, value: Serialize | None) -> None:
        self._key: Final = key
        self._value: Final = value

    @classmethod
    def of(cls, key: GivenSerializer | None, value: GivenSerializer | None) -> RecordSerializers | None:
        """None: both are bytes. InvalidConfigError."""
        of_key, of_value = serializer_of(key, "key_serializer"), serializer_of(value, "value_serializer")
        return None if of_key is None and of_value is None else cls(of_key, of_value)

    # One record: key and value.

    def encode_at_once(self, topic: str, key: Any, value: Any) -> Encoded:
        """SerializationError, also where something must be loaded first."""
        try:
            return self._encode(topic, key, value)
        except Pending as pending:
            raise SerializationError(
                f"{pending.what} must be loaded first, for which `send` does not wait: use `await enqueue(...)`",
                topic=topic,
            ) from None

    def encode(self, topic: str, key: Any, value: Any) -> Encoded:
        """Waits for what must be loaded first. SerializationError."""
        for _ in range(LOADS_MAX):
            try:
                return self._encode(topic, key, value)
            except Pending as pending:
                pending.load()
        raise _endless(topic)

    async def encode_async(self, topic: str, key: Any, value: Any) -> Encoded:
        """As `encode`; a thread waits."""
        for _ in range(LOADS_MAX):
            try:
                return self._encode(topic, key, value)
            except Pending as pending:
                await asyncio.to_thread(pending.load)  # sim: only of clients; calls what the user gave
        raise _endless(topic)

    # Many: all of them, or none.

    def encode_many(self, topic: str, keys: Any, values: Any) -> Columns:
        """As `encode`. What is not a list or tuple is returned as it is, for `send_many` to refuse."""
        if not _are_columns(keys, values):
            return values, keys
        pairs = [self.encode(topic, key, value) for key, value in _pairs(keys, values)]
        return _columns(pairs, keyed=keys is not None)

    async def encode_many_async(self, topic: str, keys: Any, values: Any) -> Columns:
        if not _are_columns(keys, values):
            return values, keys
        pairs: list[Encoded] = []
        for number, (key, value) in enumerate(_pairs(keys, values)):
            if number % 1024 == 1023:
                await asyncio.sleep(0)  # other tasks have their turn
            pairs.append(await self.encode_async(topic, key, value))
        return _columns(pairs, keyed=keys is not None)

    def _encode(self, topic: str, key: Any, value: Any) -> Encoded:
        """SerializationError, Pending."""
        if key is not None and self._key is not None:
            key = _encoded(self._key, topic, "key", key)
        if value is not None and self._value is not None:
            value = _encoded(self._value, topic, "value", value)
        return key, value


def _encoded(serialize: Serialize, topic: str, what: str, given: Any) -> bytes | None:
    try:
        found = serialize(topic, given)
    except (Pending, SerializationError):
        raise
    except Exception as error:
        why = error.message if isinstance(error, StreamlogError) else f"{type(error).__name__}: {error}"
        raise SerializationError(
            f"the {what} of a record for {topic} cannot be serialized: {why}", topic=topic, field=what
        ) from error
    if found is not None and found.__class__ is not bytes:
        raise SerializationError(
            f"the serializer of {what}s returned {type(found).__name__} for {topic}, not bytes", topic=topic, field=what
        )
    return found


def _endless(topic: str) -> SerializationError:
    return SerializationError(f"a record for {topic} needed more than {LOADS_MAX} loads to be serialized", topic=topic)


def _are_columns(keys: object, values: object) -> bool:
    return all(isinstance(one, list | tuple) for one in (values, () if keys is None else keys)) and (
        keys is None or len(keys) == len(values)  # type: ignore[arg-type]  # both are sequences
    )


def _pairs(keys: Sequence[Any] | None, values: Sequence[Any]) -> zip[tuple[Any, Any]]:
    return zip([None] * len(values) if keys is None else keys, values, strict=True)


def _columns(pairs: Sequence[Encoded], *, keyed: bool) -> Columns:
    return [value for _, value in pairs], [key for key, _ in pairs] if keyed else None
