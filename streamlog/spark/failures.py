"""Errors for the author of a query: one sentence instead of a traceback.

The Python code of a data source runs in processes that Spark starts; the driver shows their exceptions with the
traceback of that process. Where the user can do something about the error (an option, a cluster that does not answer),
only the message matters. `without_traceback` decorates all functions that Spark calls.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

from streamlog.errors import (
    BrokerNotAvailableError,
    CorruptBatchError,
    NetworkError,
    RequestTimedOutError,
    StreamlogError,
    UnknownTopicOrPartitionError,
)

P = ParamSpec("P")
T = TypeVar("T")

# Read by pyspark: a worker with this variable sends only the last line of an exception.
_HIDE: Final = "SPARK_HIDE_TRACEBACK"

_REMEDIES: Final[dict[type[StreamlogError], str]] = {
    BrokerNotAvailableError: "check that the nodes are running and streamlog.bootstrap.servers has their addresses",
    NetworkError: "check that the nodes are running and streamlog.bootstrap.servers has their addresses",
    RequestTimedOutError: "check that the nodes are running and streamlog.bootstrap.servers has their addresses",
    CorruptBatchError: "to skip such batches, set option streamlog.on.corrupt.batch=skip",
    UnknownTopicOrPartitionError: "list the topics with 'streamlogctl topic list'",
}


class StreamlogSparkError(Exception):
    """An error whose message is for the author of the query."""


class OptionError(StreamlogSparkError):
    """An invalid option."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option

    def __reduce__(self) -> tuple[Callable[[str], StreamlogSparkError], tuple[str]]:
        return StreamlogSparkError, (str(self),)


class DataLossError(StreamlogSparkError):
    """Records to be read were deleted, and failOnDataLoss is true."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; to skip the lost records, set failOnDataLoss=false")

    def __reduce__(self) -> tuple[Callable[[str], StreamlogSparkError], tuple[str]]:
        return StreamlogSparkError, (str(self),)


@contextmanager
def hiding_tracebacks() -> Iterator[None]:
    """Raises StreamlogError as StreamlogSparkError; Spark shows only the message of both."""
    try:
        yield
    except StreamlogSparkError:
        os.environ[_HIDE] = "1"
        raise
    except StreamlogError as error:
        os.environ[_HIDE] = "1"
        raise StreamlogSparkError(sentence(error)) from None


def without_traceback(function: Callable[P, T]) -> Callable[P, T]:
    """As `hiding_tracebacks`, around a function."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        with hiding_tracebacks():
            return function(*args, **kwargs)

    return called


def sentence(error: StreamlogError) -> str:
    """The error's message, and what to do, where the message does not say it."""
    message = error.message.rstrip(".")
    if "transaction.two.phase.commit.enable" in message:
        return (
            f"{message}: writing exactly once needs transaction.two.phase.commit.enable=true in the server.properties "
            "of all nodes, and their restart"
        )
    if "streamlogctl " in message:
        return message
    remedy = next((_REMEDIES[kind] for kind in type(error).__mro__ if kind in _REMEDIES), "")
    return f"{message}: {remedy}" if remedy else message
