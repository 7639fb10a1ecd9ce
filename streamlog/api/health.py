"""`grpc.health.v1`: which services of this node can serve, for load balancers and orchestrators.

Each service starts as NOT_SERVING; only the node changes that. The server as a whole (the empty name) is SERVING while
every service is. Once the node stops, all are permanently NOT_SERVING; watching clients are notified before the
listener closes.
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
        """`services`: full names of all served services but this one."""
        self._serving = dict.fromkeys(sorted(services), False)
        self._stopped = False
        self._changed = asyncio.Event()  # replaced with each change

    def set_serving(self, service: str, serving: bool) -> None:
        """InvariantError for an unknown service."""
        if service not in self._serving:
            raise InvariantError(f"health of {service!r}, which this node does not serve")
        if not self._stopped and self._serving[service] != serving:
            self._serving[service] = serving
            self._notify()

    def stop(self) -> None:
        """All services are NOT_SERVING from now on, permanently."""
        self._stopped = True
        self._serving = dict.fromkeys(self._serving, False)
        self._notify()

    def is_serving(self, service: str) -> bool | None:
        """None for an unknown service. OVERALL: all of them."""
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

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _check(self, request: pb.HealthCheckRequest, call: Call) -> pb.HealthCheckResponse:
        status = self._status(request.service)
        if status == _STATUS.SERVICE_UNKNOWN:
            raise RpcError(Status.NOT_FOUND, f"service {request.service!r} does not exist")
        return pb.HealthCheckResponse(status=status)

    async def _list(self, request: pb.HealthListRequest, call: Call) -> pb.HealthListResponse:
        names = [OVERALL, *self._serving]
        return pb.HealthListResponse(
            statuses={name: pb.HealthCheckResponse(status=self._status(name)) for name in names}
        )

    async def _watch(
        self, request: pb.HealthCheckRequest, responses: Responses[pb.HealthCheckResponse], call: Call
    ) -> None:
        """Sends the status now and after each change. Changes that are reversed before they are sent are skipped."""
        sent: int | None = None
        while True:
            changed = self._changed
            status = self._status(request.service)
            if status != sent:
                await responses.send(pb.HealthCheckResponse(status=status))
                sent = status
                continue  # it may have changed during the send
            await changed.wait()

    def _status(self, service: str) -> int:
        serving = self.is_serving(service)
        if serving is None:
            return int(_STATUS.SERVICE_UNKNOWN)
        return int(_STATUS.SERVING if serving else _STATUS.NOT_SERVING)
