"""One call, and how it ended.

whole      messages, end of the request, answers read
half-open  the request does not end: the caller says nothing more for a while, then cancels
unread     no answer is read, then cancelled
cancel     cancelled at once
short      a deadline of a few milliseconds
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from msgspec import Struct

from .catalogue import Method
from .messages import Case

TIMEOUT_S: Final = 5.0
HELD_S: Final = 1.0  # how long a stream stays half open, or unread
_CRASHED_IN_ANSWER: Final = b"UNKNOWN_SERVER_ERROR"
UNANSWERED: Final = "NO_ANSWER"  # of a call that waited for one: by right only where a request asks to wait
CRASHES: Final = frozenset({"INTERNAL", "UNKNOWN"})


class Outcome(Struct, frozen=True):
    status: str
    reason: str = ""  # our own code, where the status has one
    message: str = ""

    @property
    def crashed(self) -> bool:
        """OUTCOME_UNKNOWN is an answer: of a node that cannot know."""
        return self.reason == "UNKNOWN_SERVER_ERROR" or (self.status in CRASHES and self.reason != "OUTCOME_UNKNOWN")


class Caller:
    """For any number of threads."""

    def __init__(self, addresses: list[str], methods: tuple[Method, ...]) -> None:
        self._methods = {method.path: method for method in methods}
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
        ]
        self._channels = [grpc.insecure_channel(address, options=options) for address in addresses]

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def call(self, case: Case) -> Outcome:
        method = self._methods[case.method]
        channel = self._channels[case.node]
        try:
            answers = _unary(channel, case) if method.is_unary else _stream(channel, case)
        except grpc.FutureCancelledError:
            return Outcome("CANCELLED")
        except grpc.RpcError as error:
            status = error.code().name
            if status == "DEADLINE_EXCEEDED" and method.is_unary and case.shape == "whole" and not _reason(error):
                status = UNANSWERED
            return Outcome(status, _reason(error), (error.details() or "")[:300])
        if any(_CRASHED_IN_ANSWER in answer for answer in answers):
            return Outcome("OK", "UNKNOWN_SERVER_ERROR", "inside an answer")
        return Outcome("OK")


def _unary(channel: Any, case: Case) -> list[bytes]:
    timeout = 0.003 if case.shape == "short" else TIMEOUT_S
    future = channel.unary_unary(case.method).future(case.messages[0], timeout=timeout, metadata=case.metadata)
    if case.shape == "cancel":
        future.cancel()
    return [future.result()]


def _stream(channel: Any, case: Case) -> list[bytes]:
    ended = threading.Event()

    def requests() -> Iterator[bytes]:
        yield from case.messages
        if case.shape != "whole":
            ended.wait(HELD_S)

    timeout = 0.005 if case.shape == "short" else TIMEOUT_S
    call = channel.stream_stream(case.method)(requests(), timeout=timeout, metadata=case.metadata)
    answers: list[bytes] = []
    try:
        if case.shape == "cancel":
            call.cancel()
        if case.shape == "unread":
            ended.wait(HELD_S)
            call.cancel()
        if case.shape == "half-open":
            timer = threading.Timer(HELD_S, call.cancel)
            timer.start()
        for answer in call:
            answers.append(answer)
            if len(answers) >= case.reads:
                call.cancel()
                break
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.CANCELLED:
            raise
    finally:
        ended.set()
    return answers


def _reason(error: Any) -> str:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            info = ErrorInfo()
            for detail in Status.FromString(value).details:
                if detail.Unpack(info):
                    return str(info.reason)
    return ""
