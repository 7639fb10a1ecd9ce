"""Who is a node, and for which node it may speak."""

from __future__ import annotations

import pytest

from streamlog.errors import Status
from streamlog.ports import CallInfo, RpcError
from streamlog.tls.callers import check_node, check_speaker
from streamlog.tls.identity import node_of, node_uri


def info(*names: str, identity: str | None = "CN=x") -> CallInfo:
    return CallInfo(method="/streamlog.internal.v1.Raft/Exchange", peer="p", identity=identity, names=names)


def denied(check: object, *arguments: object) -> str:
    assert callable(check)
    with pytest.raises(RpcError) as caught:
        check(*arguments)
    assert caught.value.status is Status.PERMISSION_DENIED
    return caught.value.message


@pytest.mark.parametrize(
    ("names", "node_id"),
    [
        (["host", node_uri(3)], 3),
        ([node_uri(0)], 0),
        ([node_uri(3), node_uri(3)], 3),
        ([node_uri(3), node_uri(4)], None),
        (["urn:streamlog:node:03"], None),
        (["urn:streamlog:node:3\n"], None),
        (["urn:streamlog:node:-1"], None),
        (["urn:streamlog:node:9999999999"], None),
        (["xurn:streamlog:node:3"], None),
        ([], None),
    ],
)
def test_the_node_id_of_a_certificate(names: list[str], node_id: int | None) -> None:
    assert node_of(names) == node_id


def test_a_node_speaks_for_itself_only() -> None:
    check_node(info(node_uri(3)))
    check_speaker(info(node_uri(3)), 3)
    assert "is that of node 3" in denied(check_speaker, info(node_uri(3)), 4)


def test_a_client_is_no_node() -> None:
    assert "names no node" in denied(check_node, info("localhost"))
    assert "is no node's" in denied(check_speaker, info("localhost"), 1)


def test_without_tls_callers_are_taken_at_their_word() -> None:
    check_node(info(identity=None))
    check_speaker(info(identity=None), 7)
