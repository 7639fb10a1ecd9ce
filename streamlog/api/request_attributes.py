"""What the span of a request says about its method and caller."""

from __future__ import annotations

from streamlog.ports import CallInfo
from streamlog.ports.tracing import PEER, PRINCIPAL, RPC_METHOD, RPC_SERVICE, RPC_SYSTEM, TLS_SUBJECT, AttributeValue


def request_attributes(info: CallInfo) -> dict[str, AttributeValue]:
    service, _, method = info.method.lstrip("/").partition("/")
    found: dict[str, AttributeValue] = {
        RPC_SYSTEM: "grpc",
        RPC_SERVICE: service,
        RPC_METHOD: method,
        PEER: info.peer,
    }
    if info.identity:
        found[TLS_SUBJECT] = info.identity
    if info.guard is not None:
        found[PRINCIPAL] = info.guard.principal
    return found
