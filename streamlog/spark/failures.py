"""How a failure reaches whoever wrote the query: one sentence, not a traceback.

Python code of a data source runs in processes that Spark starts; what they raise is shown at the driver with the
traceback of that process. Of an error that its reader can do something about, an option or a cluster that does not
answer, only the sentence is of use. `told` is put around everything that Spark calls, and leaves just that.
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

# pyspark's own name: a worker that has it sends the last line of an exception alone.
_HIDE: Final = "SPARK_HIDE_TRACEBACK"

_REMEDIES: Final[dict[type[StreamlogError], str]] = {
    BrokerNotAvailableError: "see that the nodes run and streamlog.bootstrap.servers names them",
    NetworkError: "see that the nodes run and streamlog.bootstrap.servers names them",
    RequestTimedOutError: "see that the nodes run and streamlog.bootstrap.servers names them",
    CorruptBatchError: "with option streamlog.on.corrupt.batch=skip the query goes on without such batches",
    UnknownTopicOrPartitionError: "see what there is with 'streamlogctl topic list'",
}


class StreamlogSparkError(Exception):
    """One sentence for whoever wrote the query."""


class OptionError(StreamlogSparkError):
    """Of an option, which it names."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option

    def __reduce__(self) -> tuple[Callable[[str], StreamlogSparkError], tuple[str]]:
        return StreamlogSparkError, (str(self),)


class DataLossError(StreamlogSparkError):
    """Records that were to be read are not there any more, and failOnDataLoss is true."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; with failOnDataLoss=false the query goes on without them")

    def __reduce__(self) -> tuple[Callable[[str], StreamlogSparkError], tuple[str]]:
        return StreamlogSparkError, (str(self),)


@contextmanager
def telling() -> Iterator[None]:
    """StreamlogSparkError in the place of StreamlogError; of both, Spark shows the sentence alone."""
    try:
        yield
    except StreamlogSparkError:
        os.environ[_HIDE] = "1"
        raise
    except StreamlogError as error:
        os.environ[_HIDE] = "1"
        raise StreamlogSparkError(sentence(error)) from None


def told(function: Callable[P, T]) -> Callable[P, T]:
    """As `telling`, around a function."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        with telling():
            return function(*args, **kwargs)

    return called


def sentence(error: StreamlogError) -> str:
    """What is wrong, and what to do."""
    message = error.message.rstrip(".")
    if "transaction.two.phase.commit.enable" in message:
        return f"{message}: writing exactly once needs transaction.two.phase.commit.enable=true on all nodes"
    remedy = next((_REMEDIES[kind] for kind in type(error).__mro__ if kind in _REMEDIES), "")
    return f"{message}: {remedy}" if remedy else message
