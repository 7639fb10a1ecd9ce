"""`grpc.health.v1`: which services of this node can serve now, for load balancers and orchestrators.

Each service begins as NOT_SERVING; the node says when that changes, and only then. The server as a whole (the empty
name) serves when every service does. Once the node stops, nothing serves any more, whatever is said afterwards: whoever
watches is told before the listener closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from grpc_health.v1 import health_pb2 as pb

from streamlog.api.service import Call, Responses, Service, downstream, unary
from streamlog.errors import InvariantError, Status
from streamlog.ports import Clock, RpcError

OVERALL: Final = ""
_STATUS: Final = pb.HealthCheckResponse.ServingStatus
_REQUEST_BYTES_MAX: Final = 1_024


class Health:
    """Owned by the node; read by any number of calls."""

    def __init__(self, services: Iterable[str]) -> None:
        """`services`: full names of all that are served, but this one."""
        self._serving = dict.fromkeys(sorted(services), False)
        self._stopped = False
        self._changed = asyncio.Event()  # replaced with each change

    def set_serving(self, service: str, serving: bool) -> None:
        """InvariantError where there is no such service."""
        if service not in self._serving:
            raise InvariantError(f"health of {service!r}, which is not served here")
        if not self._stopped and self._serving[service] != serving:
            self._serving[service] = serving
            self._tell()

    def stop(self) -> None:
        """Nothing serves from here on, for ever."""
        self._stopped = True
        self._serving = dict.fromkeys(self._serving, False)
        self._tell()

    def is_serving(self, service: str) -> bool | None:
        """None where there is no such service. OVERALL: all of them."""
        if service == OVERALL:
            return not self._stopped and all(self._serving.values())
        return self._serving.get(service)

    def service(self, clock: Clock) -> Service:
        check, watch = pb.HealthCheckRequest, pb.HealthCheckResponse
        bound = _REQUEST_BYTES_MAX
        return Service(
            pb.DESCRIPTOR.services_by_name["Health"],
            clock,
            [
                unary("Check", check, watch, self._check, request_bytes_max=bound),
                unary("List", pb.HealthListRequest, pb.HealthListResponse, self._list, request_bytes_max=bound),
                downstream("Watch", check, watch, self._watch, request_bytes_max=bound),
            ],
        )

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _check(self, request: pb.HealthCheckRequest, call: Call) -> pb.HealthCheckResponse:
        status = self._status(request.service)
        if status == _STATUS.SERVICE_UNKNOWN:
            raise RpcError(Status.NOT_FOUND, f"there is no service {request.service!r}")
        return pb.HealthCheckResponse(status=status)

    async def _list(self, request: pb.HealthListRequest, call: Call) -> pb.HealthListResponse:
        names = [OVERALL, *self._serving]
        return pb.HealthListResponse(
            statuses={name: pb.HealthCheckResponse(status=self._status(name)) for name in names}
        )

    async def _watch(
        self, request: pb.HealthCheckRequest, responses: Responses[pb.HealthCheckResponse], call: Call
    ) -> None:
        """Tells the status now and whenever it is another one. What changes there and back meanwhile is not told."""
        told: int | None = None
        while True:
            changed = self._changed
            status = self._status(request.service)
            if status != told:
                await responses.send(pb.HealthCheckResponse(status=status))
                told = status
                continue  # it may have changed while the caller was being told
            await changed.wait()

    def _status(self, service: str) -> int:
        serving = self.is_serving(service)
        if serving is None:
            return int(_STATUS.SERVICE_UNKNOWN)
        return int(_STATUS.SERVING if serving else _STATUS.NOT_SERVING)
