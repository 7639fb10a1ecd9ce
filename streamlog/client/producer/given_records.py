"""What a caller gives to `send`, checked before anything of it is taken: a refused record affects no other one.

`send` checks key and value itself, where the check of a class costs nothing more; what is rare is checked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from operator import index
from typing import Final, TypeAlias, TypeVar, cast

from streamlog.errors import InvalidRequestError
from streamlog.records import Headers

GivenHeaders: TypeAlias = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
T = TypeVar("T")
U = TypeVar("U")
TIMESTAMP_MAX: Final = (1 << 63) - 1


def check_bytes(what: str, given: object) -> None:
    """`what`: key, value."""
    if given is not None and given.__class__ is not bytes:
        raise InvalidRequestError(f"a {what} must be bytes or None, not {type(given).__name__}", field=what)


def checked_headers(given: GivenHeaders) -> Headers:
    """As pairs; a mapping has one header for each of its names."""
    if given.__class__ is tuple or given.__class__ is list:  # nearly always, and checks of classes are cheap
        for pair in given:
            if pair.__class__ is not tuple or len(pair) != 2 or pair[0].__class__ is not str:
                break
            value = pair[1]
            if value is not None and value.__class__ is not bytes:
                break
        else:
            return cast(Headers, tuple(given))
    pairs: object = given.items() if isinstance(given, Mapping) else given
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise _bad_headers(f"not {type(given).__name__}")
    found: list[tuple[str, bytes | None]] = []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise _bad_headers(f"header {number} is {shown(pair)}")
        name, value = pair
        if not isinstance(name, str):
            raise _bad_headers(f"the name of header {number} is {shown(name)}")
        if value is not None and value.__class__ is not bytes:
            hint = "; encode it: value.encode()" if isinstance(value, str) else ""
            raise _bad_headers(f"the value of header {name!r} is {shown(value)}{hint}")
        found.append((name, value))
    return tuple(found)


def _bad_headers(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"headers must be pairs (name: str, value: bytes or None), or a dict of them: {why}", field="headers"
    )


def checked_timestamp(given: object) -> int:
    try:
        timestamp_ms = -1 if isinstance(given, bool) else index(given)  # type: ignore[arg-type]  # TypeError below
    except TypeError:
        timestamp_ms = -1
    if not 0 <= timestamp_ms <= TIMESTAMP_MAX:
        raise InvalidRequestError(
            f"timestamp_ms must be an integer from 0 (milliseconds since 1970), or None for the present time, not"
            f" {shown(given)}",
            field="timestamp_ms",
        )
    return timestamp_ms


def checked_partition(given: object) -> int:
    """Whether the topic has it is known later."""
    try:
        if not isinstance(given, bool):
            return index(given)  # type: ignore[arg-type]  # TypeError below
    except TypeError:
        pass
    raise InvalidRequestError(f"partition must be an integer or None, not {shown(given)}", field="partition")


def check_topic(given: object) -> None:
    if not isinstance(given, str) or not given:
        raise InvalidRequestError(f"a topic must be a name, not {shown(given)}", field="topic")
    if not given.isprintable():
        raise InvalidRequestError(
            f"topic {shown(given)}: the name has control or unprintable characters", field="topic"
        )


def several(field: str, given: Iterable[T]) -> Iterable[T]:
    """What is to be a list: a text is none, though its characters would pass for one. InvalidRequestError."""
    if isinstance(given, str | bytes | bytearray) or not isinstance(given, Iterable):
        raise InvalidRequestError(f"{field} must be a list, not {shown(given)}", field=field)
    return given


def mapping(field: str, given: Mapping[T, U]) -> Mapping[T, U]:
    """What is to be one. InvalidRequestError."""
    if not isinstance(given, Mapping):
        raise InvalidRequestError(f"{field} must be a dict, not {shown(given)}", field=field)
    return given


def check_timeout(given: object) -> None:
    is_number = isinstance(given, Real) and not isinstance(given, bool)
    if given is not None and not is_number:
        raise InvalidRequestError(
            f"timeout_s must be a number of seconds or None, not {shown(given)}", field="timeout_s"
        )


def check_function(field: str, given: object) -> None:
    if given is not None and not callable(given):
        raise InvalidRequestError(f"{field} must be a function or None, not {shown(given)}", field=field)


def shown(given: object) -> str:
    """Its type, and what it is as far as that is short."""
    text = repr(given)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(given).__name__})"
