"""Calls that a node makes for a client, of itself: of its own methods, without a connection.

What another node coordinates these pass on, so whoever asks here gets the cluster's answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from streamlog.api.calls import Message, Response, UnaryCall
from streamlog.api.service import Call, UnaryMethod
from streamlog.errors import RequestTimedOutError
from streamlog.ports import CallInfo, Clock


class OwnNode:
    """As streamlog.client.transactions.transaction_manager.Nodes wants it."""

    def __init__(self, methods: Mapping[str, UnaryMethod[Any, Any]], clock: Clock) -> None:
        """`methods`: by full name, such as `streamlog.v1.Transactions/EndTransaction`."""
        self._methods = methods
        self._clock = clock

    async def ask(self, call: UnaryCall[Response], request: Message, *, address: str, timeout_s: float) -> Response:
        """As `ask_any`: who has that address is asked by the method itself."""
        return await self.ask_any(call, request, timeout_s=timeout_s)

    async def ask_any(self, call: UnaryCall[Response], request: Message, *, timeout_s: float) -> Response:
        """What the method raises; RequestTimedOutError."""
        info = CallInfo(method=f"/{call.method}", peer="", deadline=self._clock.monotonic() + timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                answer: Response = await self._methods[call.method](request, Call(info, self._clock))
        except TimeoutError:
            raise RequestTimedOutError(f"{call.method} was not answered in time") from None
        return answer
