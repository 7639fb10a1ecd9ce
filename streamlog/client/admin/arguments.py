"""What a caller gives to the methods of AsyncAdmin, checked at their entrance by what they are annotated with.

    admin.delete_topics("orders") -> names: Iterable[str] -> InvalidRequestError: names must be a list, ...

So no method checks by itself, and what a message would take for something else (a text is its characters) is refused
before anything is sent.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from streamlog.client.producer.given_records import several

Client = TypeVar("Client", bound=type)
Method = Callable[..., Coroutine[Any, Any, Any]]


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
        for name in bound.arguments.keys() & hints.keys():
            bound.arguments[name] = _taken(hints[name], name, bound.arguments[name])
        return await method(*bound.args, **bound.kwargs)

    return call


@functools.cache
def _hints(annotated: Any) -> dict[str, Any]:
    return get_type_hints(annotated)


def _taken(hint: Any, field: str, given: Any) -> Any:
    """As the annotation wants it. InvalidRequestError."""
    hints = [one for one in get_args(hint) or () if get_origin(one) in (Iterable, Sequence)]
    if get_origin(hint) in (Iterable, Sequence) or (hints and given is not None):
        return several(field, given)
    return given
