"""Who may call the services between nodes: connections whose certificate is a node's, for that node only.

Where a listener is PLAINTEXT there are no certificates, and every caller is taken for what it says it is.
"""

from __future__ import annotations

from typing import Final

from streamlog.errors import Status
from streamlog.model import BrokerId
from streamlog.ports.network import CallInfo, RpcError
from streamlog.tls.identity import node_of, node_uri

INTERNAL_PREFIX: Final = "/streamlog.internal."
"""Of the full names of all methods between nodes."""


def check_node(info: CallInfo) -> None:
    """RpcError(PERMISSION_DENIED) if the caller's certificate is not a node's."""
    if info.identity is not None and node_of(info.names) is None:
        why = f"the certificate {info.identity} names no" if info.identity else "without a certificate the caller is no"
        raise RpcError(
            Status.PERMISSION_DENIED,
            f"{info.method.lstrip('/')} is for nodes of the cluster only: {why} node ({node_uri(0)[:-1]}ID among its "
            "alternative names)",
        )


def client_listener_refusal(info: CallInfo) -> RpcError:
    """Of a method between nodes at a listener for clients."""
    return RpcError(
        Status.PERMISSION_DENIED,
        f"{info.method.lstrip('/')} is for nodes of the cluster only, and not served at listener {info.listener} "
        "(inter.broker.listener.name)",
    )


def check_speaker(info: CallInfo, node_id: int) -> None:
    """RpcError(PERMISSION_DENIED) if the caller says that it is this node, and its certificate does not."""
    if info.identity is None:
        return
    certified = node_of(info.names)
    if certified != BrokerId(node_id):
        whose = "no node's" if certified is None else f"that of node {certified}"
        raise RpcError(
            Status.PERMISSION_DENIED,
            f"the caller says that it is node {node_id}, but its certificate {info.identity} is {whose}",
        )
