"""The address of a node, from a message."""

from __future__ import annotations

from streamlog.api.pb import common_pb2


def address_of(node: common_pb2.Node) -> str:
    """`host:port`; an IPv6 host in brackets."""
    return f"[{node.host}]:{node.port}" if ":" in node.host else f"{node.host}:{node.port}"
