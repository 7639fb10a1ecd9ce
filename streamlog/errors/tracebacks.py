"""Handled errors: their tracebacks, and the groups around them."""

from __future__ import annotations


def clear_tracebacks(error: BaseException) -> None:
    """Drops the tracebacks of a handled error, its causes and the members of its groups.

    A traceback holds every frame that it came through, with all variables. Where one of these is the error itself, or
    a group that holds it, that is a cycle: the request and all data read for it stay in memory until the garbage
    collector runs. (asyncio.TaskGroup makes such a cycle of every cancellation.)
    """
    pending, seen = [error], set[int]()
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = None
        pending += [other for other in (current.__cause__, current.__context__) if other is not None]
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions


def first_error(error: BaseException) -> BaseException:
    """The first error of nested exception groups; `error` where it is none."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
