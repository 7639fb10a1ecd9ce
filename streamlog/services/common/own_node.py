"""Calls to methods of this node on behalf of a client, without a connection.

The methods forward what another node coordinates, so the result is the cluster's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamlog.aio.timeouts import timeout
from streamlog.api.calls import Message, Response, UnaryCall
from streamlog.api.service import Call, UnaryMethod
from streamlog.errors import RequestTimedOutError
from streamlog.ports import CallInfo, Clock


class OwnNode:
    """Implements streamlog.client.transactions.transaction_manager.Nodes."""

    def __init__(self, methods: Mapping[str, UnaryMethod[Any, Any]], clock: Clock) -> None:
        """`methods`: by full name, such as `streamlog.v1.Transactions/EndTransaction`."""
        self._methods = methods
        self._clock = clock

    async def ask(self, call: UnaryCall[Response], request: Message, *, address: str, timeout_s: float) -> Response:
        """As `ask_any`: the method itself forwards to the node that has to serve it."""
        return await self.ask_any(call, request, timeout_s=timeout_s)

    async def ask_any(self, call: UnaryCall[Response], request: Message, *, timeout_s: float) -> Response:
        """What the method raises; RequestTimedOutError."""
        info = CallInfo(method=f"/{call.method}", peer="", deadline=self._clock.monotonic() + timeout_s)
        try:
            async with timeout(timeout_s):
                answer: Response = await self._methods[call.method](request, Call(info, self._clock))
        except TimeoutError:
            raise RequestTimedOutError(f"{call.method} got no response within {timeout_s:g} s") from None
        return answer
