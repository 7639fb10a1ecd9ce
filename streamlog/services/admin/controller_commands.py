"""Commands of operators, decided by the active controller.

    this node is the active controller --> submit --> committed and applied here --> response
    it is not, call of a client        --> forwarded to the controller --> applied here too --> response
    it is not, call of another node    --> NOT_CONTROLLER: that node looks for the controller, so calls never loop

So a change is in effect on the node that served the call when the response arrives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from streamlog.api.responses import parse_response
from streamlog.api.service import Call, Request, Response
from streamlog.errors import BrokerNotAvailableError, NotControllerError, OutcomeUnknownError
from streamlog.metadata.controller import Command
from streamlog.services.common.collaborators import CommandSubmitter, ControllerAccess
from streamlog.services.common.forwarding import is_forwarded, timeout_of

_ADMIN: Final = "/streamlog.v1.Admin/"


class ControllerDispatch:
    def __init__(self, controller: CommandSubmitter, link: ControllerAccess) -> None:
        self._controller = controller
        self._link = link

    async def decide(
        self,
        method: str,
        command: Command,
        request: Request,
        response_type: type[Response],
        answer: Callable[[Any], Response],
        call: Call,
    ) -> Response:
        """`command` is the command of Admin's `method` with this `request`; `answer` converts its result."""

        async def submit() -> Response:
            return answer(await self._controller.submit(command))

        return await self.at_controller(method, submit, request, response_type, call)

    async def at_controller(
        self,
        method: str,
        work: Callable[[], Awaitable[Response]],
        request: Request,
        response_type: type[Response],
        call: Call,
    ) -> Response:
        """Run `work` here; if it raises NotControllerError, call `method` at the active controller. StreamlogError,
        RpcError.
        """
        try:
            return await work()
        except NotControllerError:
            if is_forwarded(call):
                raise
        data = await self._link.forward(_ADMIN + method, request.SerializeToString(), timeout_of(call))
        try:
            return parse_response(response_type, data, "the controller")
        except BrokerNotAvailableError as error:
            raise OutcomeUnknownError(
                f"{error.message}; {method} may or may not have been carried out; check before you retry"
            ) from None
