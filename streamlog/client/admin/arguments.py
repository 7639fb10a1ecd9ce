"""What a caller gives to the methods of AsyncAdmin, checked at their entrance by what they are annotated with.

    admin.delete_topics("orders")   -> names: Iterable[str]   -> names must be a list, not 'orders' (str)
    admin.create_topic("t", "3")    -> partitions: int | None -> partitions must be an integer or None, not '3' (str)
    admin.create_topics([5])        -> Iterable[NewTopic]     -> topics[0] must be a NewTopic, not 5 (int)

So no method checks by itself, and what a message would take for something else (a text is its characters) is refused
before anything is sent: InvalidRequestError. (topic, partition) does for a TopicPartition. What a result of the client
holds is not looked at.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import chain
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from streamlog.client.producer.given_records import shown
from streamlog.errors import InvalidRequestError
from streamlog.model import TopicPartition

Client = TypeVar("Client", bound=type)
Method = Callable[..., Coroutine[Any, Any, Any]]

_LISTS: Final = (Iterable, Sequence)
_NAMES: Final[Mapping[Any, str]] = {
    NoneType: "None",
    str: "a str",
    bool: "True or False",
    int: "an integer",
    float: "a number",
    bytes: "bytes",
    TopicPartition: "a TopicPartition or (topic, number)",
    Mapping: "a dict",
    **dict.fromkeys(_LISTS, "a list"),
}
_REFUSED: Final = object()
_MAY_BE_SECRET: Final = re.compile("password|secret|token|value|config")


def checked(client: Client) -> Client:
    """A class whose coroutine methods, inherited ones too, check what they are given."""
    for name, method in inspect.getmembers(client, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            setattr(client, name, _checked(method))
    return client


def _checked(method: Method) -> Method:
    signature = inspect.signature(method)

    @functools.wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{method.__name__}(): {error}") from None
        hints = _hints(method)
        for name, given in bound.arguments.items():
            if name in hints:
                bound.arguments[name] = _taken(hints[name], name, given)
        return await method(*bound.args, **bound.kwargs)

    return call


@functools.cache
def _hints(annotated: Any) -> dict[str, Any]:
    return get_type_hints(annotated)


def _taken(hint: Any, place: str, given: Any) -> Any:
    """As the annotation wants it. `place`: the argument, and where in it. InvalidRequestError."""
    choices = _choices(hint)
    for kind in choices:
        taken = _taken_as(kind, place, given)
        if taken is not _REFUSED:
            return taken
    wanted = " or ".join(map(_name, choices))
    field = re.match(r"\w*", place)
    hidden = isinstance(given, str | bytes | bytearray) and _MAY_BE_SECRET.search(place)
    found = type(given).__name__ if hidden else shown(given)
    raise InvalidRequestError(f"{place} must be {wanted}, not {found}", field=field and field[0])


def _choices(hint: Any) -> list[Any]:
    """None comes last, for the message."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return sorted([getattr(kind, "__supertype__", kind) for kind in kinds], key=lambda kind: kind is NoneType)


def _name(kind: Any) -> str:
    kind = get_origin(kind) or kind
    return _NAMES.get(kind) or f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def _taken_as(kind: Any, place: str, given: Any) -> Any:
    """_REFUSED: it is none of this kind. InvalidRequestError for what is within it."""
    parts = get_args(kind)
    if get_origin(kind) in _LISTS:
        if isinstance(given, str | bytes | bytearray) or not isinstance(given, Iterable):
            return _REFUSED
        before = list(given)
        after = [_taken(parts[0], f"{place}[{number}]", one) for number, one in enumerate(before)]
        is_same = isinstance(given, Sequence) and all(map(operator.is_, before, after))
        return given if is_same else after
    if get_origin(kind) is Mapping:
        if not isinstance(given, Mapping):
            return _REFUSED
        taken = {
            _taken(parts[0], f"{place}: a key", key): _taken(parts[1], f"{place}[{key!r}]", value)
            for key, value in given.items()
        }
        return given if all(map(operator.is_, chain(*given.items()), chain(*taken.items()))) else taken
    if kind is TopicPartition:
        is_pair = isinstance(given, tuple) and len(given) == 2
        given = TopicPartition(*given) if is_pair else given
    if kind is int:
        with suppress(TypeError):
            return _REFUSED if isinstance(given, bool) else operator.index(given)
        return _REFUSED
    if kind is float:
        return _REFUSED if isinstance(given, bool) or not isinstance(given, Real | Decimal) else float(given)
    if kind is bool:
        is_one = isinstance(given, int) and given in (0, 1)
        return bool(given) if is_one or type(given).__name__ in ("bool", "bool_") else _REFUSED  # numpy has one too
    if isinstance(kind, type):
        return _whole(place, given) if isinstance(given, kind) else _REFUSED
    return given


def _whole(place: str, given: Any) -> Any:
    """With its fields as their annotations want them."""
    if not isinstance(given, Struct) or "error" in given.__struct_fields__:
        return given
    hints = _hints(type(given))
    taken = {}
    for name in given.__struct_fields__:
        before = getattr(given, name)
        after = _taken(hints[name], f"{place}.{name}", before)
        if after is not before:
            taken[name] = after
    return replace(given, **taken) if taken else given
