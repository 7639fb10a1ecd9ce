"""Checks of single fields. The errors name the field relative to its message; `each` and `inside` complete the path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from streamlog.errors import InvalidRequestError, InvalidTopicError, StreamlogError
from streamlog.metadata.topics.names import check_name
from streamlog.model import PRODUCER_EPOCH_MAX, LeaderEpoch, PartitionId, ProducerEpoch, TopicId
from streamlog.printable import first_control

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Item = TypeVar("Item")
Value = TypeVar("Value")

TOPIC_ID_BYTES: Final = 16


class EnumNames(Protocol):
    """A generated enum. Its own type of numbers differs from enum to enum, hence Any."""

    def Name(self, number: Any) -> str: ...
    def values(self) -> list[Any]: ...


@contextmanager
def inside(path: str) -> Iterator[None]:
    """Errors raised in the block name their field under `path`."""
    try:
        yield
    except StreamlogError as error:
        raise _under(path, error) from None


def each(
    items: Sequence[Item], field: str, convert: Callable[[Item], Value], *, count_max: int, count_min: int = 0
) -> tuple[Value, ...]:
    """All items, converted. InvalidRequestError if they are too many or too few."""
    count = len(items)
    if not count_min <= count <= count_max:
        raise InvalidRequestError(
            f"{field} has {count} entries, but {count_min} to {count_max} are allowed",
            field=field,
            limit=count_max if count > count_max else count_min,
        )
    values = []
    for index, item in enumerate(items):
        try:
            values.append(convert(item))
        except StreamlogError as error:
            raise _under(f"{field}[{index}]", error) from None
    return tuple(values)


def together(lists: Iterable[Sequence[object]], field: str, *, count_max: int) -> None:
    """InvalidRequestError if the lists below the entries of `field` are too long together. Before any of them is
    converted: each may be within its limit, and all of them keep the node busy for seconds. Where there are more than
    `count_max` lists, `each` refuses these, and the rest of them is not looked at.
    """
    count = sum(map(len, islice(lists, count_max + 1)))
    if count > count_max:
        raise InvalidRequestError(
            f"{field} has {count} entries in all, but may have at most {count_max}", field=field, limit=count_max
        )


def distinct(keys: Sequence[object], field: str) -> None:
    """InvalidRequestError for a duplicate."""
    seen = set()
    for index, key in enumerate(keys):
        if key in seen:
            raise InvalidRequestError(f"{field} has {key} twice: each may occur once", field=f"{field}[{index}]")
        seen.add(key)


def enum_value(
    number: int, values: Mapping[int, Value], names: EnumNames, field: str, default: Value | None = None
) -> Value:
    """The value of `number`. InvalidRequestError for a number that this release does not know, and for UNSPECIFIED
    without a default.
    """
    value = values.get(number) if number else default
    if value is None:
        allowed = ", ".join(names.Name(known) for known in sorted(values))
        given = names.Name(number) if number in names.values() else number
        raise InvalidRequestError(f"{field} is {given}, but must be one of {allowed}", field=field, limit=allowed)
    return value


def at_least(number: int, low: int, field: str) -> int:
    if number < low:
        raise InvalidRequestError(f"{field} is {number}, but must be at least {low}", field=field, limit=low)
    return number


def amount(number: int, field: str, *, default: int, high: int) -> int:
    """0: the default. A negative number is refused, one above `high` is lowered to it."""
    if number < 0:
        at_least(number, 0, field)
    number = number or default
    return number if number < high else high


def topic_name(name: str, field: str = "topic") -> str:
    """InvalidTopicError for an invalid name. Internal topics are allowed."""
    try:
        check_name(name, strict=False, internal=True)
    except InvalidTopicError as error:
        raise InvalidTopicError.restored(error.message, {**error.details, "field": field}) from None
    return name


def topic_id(data: bytes, field: str = "topic_id") -> TopicId:
    if len(data) != TOPIC_ID_BYTES:
        raise InvalidRequestError(
            f"{field or 'a topic id'} has {len(data)} bytes, but must have {TOPIC_ID_BYTES}",
            field=field,
            limit=TOPIC_ID_BYTES,
        )
    return TopicId(data)


def partition_id(number: int, field: str = "partition") -> PartitionId:
    return PartitionId(at_least(number, 0, field))


def leader_epoch(number: int, field: str = "leader_epoch") -> LeaderEpoch:
    return LeaderEpoch(at_least(number, 0, field))


def producer_epoch(number: int, field: str = "producer_epoch") -> ProducerEpoch:
    """int16 in every batch."""
    if at_least(number, 0, field) > PRODUCER_EPOCH_MAX:
        raise InvalidRequestError(
            f"{field} is {number}, but must be at most {PRODUCER_EPOCH_MAX}", field=field, limit=PRODUCER_EPOCH_MAX
        )
    return ProducerEpoch(number)


def text(value: str, field: str, *, length_max: int) -> str:
    """A name: of bounded length, without control characters. InvalidRequestError."""
    return without_controls(bounded(value, field, length_max=length_max), field)


def bounded(value: str, field: str, *, length_max: int) -> str:
    """Text of bounded length. InvalidRequestError."""
    if len(value) > length_max:
        raise InvalidRequestError(
            f"{field or 'an entry'} has {len(value)} characters, but may have at most {length_max}",
            field=field,
            limit=length_max,
        )
    return value


def without_controls(value: str, field: str, error: type[StreamlogError] = InvalidRequestError) -> str:
    """`error` for a control character: ids are shown on terminals and in logs."""
    at = first_control(value)
    if at is not None:
        raise error(
            f"character {at + 1} of {field or 'an entry'} is the control character U+{ord(value[at]):04X}: "
            "ids and names must not have any",
            field=field,
            limit="no control characters",
        )
    return value


def _under(path: str, error: StreamlogError) -> StreamlogError:
    field = error.details.get("field")
    return type(error).restored(error.message, {**error.details, "field": f"{path}.{field}" if field else path})
