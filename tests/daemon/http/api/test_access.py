"""Callers over HTTP on a secure cluster. The statuses of every method are in tests/daemon/test_access_matrix.py."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Final

import pytest
from msgspec.structs import replace

from streamlog.access.acl import Acl, AclOperation, AclResourceType
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.daemon.http.api.served_api import SETTINGS, TIMEOUT_S, Client, EventReader, Response, served, subscribe_path

SECURE: Final = replace(SETTINGS, needs_login=True)
COMMIT: Final = {"group": "g", "offsets": [{"topic": "orders", "partition": 0, "offset": "1"}]}
READING: Final = {"subscriptions": [{"topic": "orders"}], "heartbeatIntervalMs": 100}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("nodes"), nodes=2, secure=True) as running:
        running.create_topic("orders")
        yield running


def login(cluster: InProcessCluster, user: str, *rights: tuple[AclResourceType, str]) -> str:
    """The header of a new user, who may READ these."""
    password = cluster.with_admin(lambda admin: admin.create_user(user))
    lists = [
        Acl(resource_type=kind, name=name, principal=f"User:{user}", operation=AclOperation.READ)
        for kind, name in rights
    ]
    if lists:
        cluster.with_admin(lambda admin: admin.create_acls(lists))
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def committed(api: Client, authorization: str, status: int) -> Response:
    """Once user and lists are in force on the node, in a moment."""
    deadline = time.monotonic() + TIMEOUT_S
    while (response := api.post("Groups/CommitOffsets", COMMIT, authorization=authorization)).status != status:
        assert time.monotonic() < deadline, response
    return response


def test_without_a_login(cluster: InProcessCluster) -> None:
    with served(cluster, settings=SECURE) as api:
        for refused in (
            api.post("Cluster/Describe", {}),
            api.post("Cluster/Describe", {}, authorization="Basic x"),
            api.post("Cluster/Describe", {}, authorization="Bearer x"),
            api.send("GET", subscribe_path(READING), {}),
        ):
            assert (refused.status, refused.reason) == (401, "SASL_AUTHENTICATION_FAILED")
            assert refused.headers["www-authenticate"].startswith("Basic ")


@pytest.mark.parametrize("node_id", [1, 2])
def test_a_forwarded_call_has_the_rights_of_its_caller(cluster: InProcessCluster, node_id: int) -> None:
    """One of the two nodes is not the group's coordinator; its certificate would allow everything."""
    without = login(cluster, f"without-{node_id}")
    reader = login(cluster, f"reader-{node_id}", (AclResourceType.TOPIC, "orders"))
    member = login(cluster, f"member-{node_id}", (AclResourceType.TOPIC, "orders"), (AclResourceType.GROUP, "g"))
    with served(cluster, node_id, SECURE) as api:
        assert committed(api, without, 403).reason == "GROUP_AUTHORIZATION_FAILED"
        assert committed(api, reader, 403).reason == "GROUP_AUTHORIZATION_FAILED"
        assert [one for one in committed(api, member, 200).json["results"] if one.get("error")] == []


def test_the_events_of_a_user_end_when_it_is_deleted(cluster: InProcessCluster) -> None:
    user = login(cluster, "reads", (AclResourceType.TOPIC, "orders"), (AclResourceType.GROUP, "g"))
    with served(cluster, settings=SECURE) as api:
        committed(api, user, 200)
        headers = {"authorization": user, "accept": "text/event-stream"}
        with EventReader(api, subscribe_path(READING), headers) as reader:
            events = iter(reader)
            assert reader.response.status == 200
            next(events)
            cluster.with_admin(lambda admin: admin.delete_user("reads"))
            last = list(events)[-1]
    assert (last.name, last.data["error"]["code"]) == ("end", "unauthenticated")
