"""Access as metadata under faults: a node with an old image grants nothing for longer than its lease.

Three nodes with an authorizer; an administrator grants and revokes alice's right on a topic, by an entry of the access
control lists, or by making and deleting a user with a password; alice calls every node all the time. Nodes are cut off
from the others, not from the clients, paused and killed.

    revocation acknowledged at R, next grant requested at G: no call that begins after R + lease + election, and ends
    before G, is allowed
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar
from unittest import mock

import pytest
from msgspec.structs import replace

from streamlog.access.acl import Acl, AclFilter, AclOperation, AclResourceType
from streamlog.api.pb import admin_pb2
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.errors import ResourceNotFoundError, StreamlogError
from streamlog.ports import Channel, RpcError
from streamlog.services.access.access_lease import AccessLease
from streamlog.sim.wires.fabric import Certificate
from streamlog.tls.identity import node_uri

from .kit import PORT, Nodes, run_story

T = TypeVar("T")

NODES: Final = 3
TOPIC: Final = "orders"
METHOD: Final = "/streamlog.v1.Admin/DescribeTopics"
LEASE_S: Final = 2.0
ELECTION_S: Final = 1.5
"""A deposed controller answers heartbeats until it notices, and timers of the simulation may be late."""
SETTINGS: Final = {
    "broker_session_timeout_ms": "2000",
    "broker_heartbeat_interval_ms": "300",
    "ssl_keystore_location": "/node.pem",
    "ssl_truststore_location": "/ca.crt",
    "authorizer_class_name": "StandardAuthorizer",
    "super_users": "User:CN=admin",
}
"""The certificates are the simulated network's, so nothing reads the files."""
RIGHT: Final = Acl(
    resource_type=AclResourceType.TOPIC, name=TOPIC, principal="User:CN=alice", operation=AclOperation.DESCRIBE
)


class Answer(NamedTuple):
    node: int
    began_s: float
    ended_s: float
    is_allowed: bool


class Access:
    """The right as the administrator knows it, and the answers that alice gets."""

    def __init__(self, nodes: Nodes, *, by_user: bool) -> None:
        self.nodes = nodes
        self._by_user = by_user
        self._login: dict[str, str] = {}  # metadata of alice's calls
        self.loop = nodes.world.loop
        self.answers: list[Answer] = []
        self.revoked: list[tuple[float, float]] = []  # from the acknowledgement to the next grant's request
        self._since: float | None = None

    async def start(self) -> None:
        """The nodes, the topic, the administrator, alice's calls."""
        certificates = self.nodes.world.fabric.certificates
        for number in range(1, NODES + 1):
            certificates[f"n{number}"] = Certificate(f"CN=node-{number}", (node_uri(number),))
            self.start_node(number)
        for name in ("admin", "alice"):
            certificates[name] = Certificate(f"CN={name}")
        await self.nodes.ready()
        addresses = ",".join(f"n{number}:{PORT}" for number in range(1, NODES + 1))
        ports = self.nodes.world.host("admin").boot()
        settings = {"bootstrap.servers": addresses, "default.api.timeout.ms": "8000", "request.timeout.ms": "2000"}
        self.admin = await self.as_host("admin", AsyncAdmin(settings, ports=ports).start())
        await self.as_host("admin", self.admin.create_topic(TOPIC, 1, NODES))
        if self._by_user:
            await self.as_host("admin", self.admin.create_acls([replace(RIGHT, principal="User:alice")]))
        alice = self.nodes.world.host("alice").boot()
        for number in range(1, NODES + 1):
            channel = alice.network.connect(f"n{number}:{PORT}")
            self.nodes.world.host("alice").spawn(self._call(number, channel))

    def start_node(self, number: int) -> None:
        self.nodes.start(number, listeners=f"SSL://n{number}:{PORT}", **SETTINGS)

    async def as_host(self, name: str, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return await self.nodes.world.host(name).spawn(run())

    async def _call(self, number: int, channel: Channel) -> None:
        request = admin_pb2.DescribeTopicsRequest(topics=[TOPIC]).SerializeToString()
        while True:
            began_s = self.loop.now
            try:
                data = await channel.unary(
                    "/streamlog.v1.Admin/DescribeTopics", request, timeout_s=1.0, metadata=self._login
                )
            except RpcError:
                is_allowed = False
            else:
                [topic] = admin_pb2.DescribeTopicsResponse.FromString(data).topics
                is_allowed = not topic.HasField("error")
            self.answers.append(Answer(number, began_s, self.loop.now, is_allowed))
            await asyncio.sleep(0.05)

    async def grant(self) -> None:
        if self._since is not None:
            self.revoked.append((self._since, self.loop.now))
            self._since = None
        if not self._by_user:
            await self.as_host("admin", self.admin.create_acls([RIGHT]))
            return
        with suppress(ResourceNotFoundError):  # left by a grant whose outcome was unknown
            await self.as_host("admin", self.admin.delete_user("alice"))
        password = await self.as_host("admin", self.admin.create_user("alice"))
        header = base64.b64encode(f"alice:{password}".encode()).decode()
        self._login = {"authorization": f"Basic {header}"}

    async def revoke(self) -> None:
        if self._by_user:
            await self.as_host("admin", self.admin.delete_user("alice"))
        else:
            await self.as_host("admin", self.admin.delete_acls([AclFilter(principal="User:CN=alice")]))
        self._since = self.loop.now

    def end(self) -> None:
        if self._since is not None:
            self.revoked.append((self._since, self.loop.now))

    def violations(self) -> list[Answer]:
        late = LEASE_S + ELECTION_S
        return [
            answer
            for answer in self.answers
            if answer.is_allowed
            and any(since + late < answer.began_s and answer.ended_s < until for since, until in self.revoked)
        ]

    def cut_off(self, number: int) -> None:
        """From the other nodes, in both directions."""
        for other in range(1, NODES + 1):
            if other != number:
                self.nodes.world.fabric.block(f"n{number}", f"n{other}")
                self.nodes.world.fabric.block(f"n{other}", f"n{number}")

    def allowed_by(self, number: int, since_s: float) -> bool:
        return any(one.is_allowed for one in self.answers if one.node == number and one.began_s >= since_s)


def play(story: Callable[[Access], Awaitable[None]], seed: int, *, by_user: bool = False) -> Access:
    played: list[Access] = []

    async def whole(nodes: Nodes) -> None:
        played.append(Access(nodes, by_user=by_user))
        await played[0].start()
        await story(played[0])
        played[0].end()

    run_story(whole, voters=NODES, seed=seed)
    return played[0]


async def a_follower_that_is_cut_off(access: Access) -> None:
    """The right is revoked while it receives nothing."""
    await access.grant()
    everywhere = range(1, NODES + 1)
    began = access.loop.now
    await access.nodes.until(lambda: all(access.allowed_by(number, began) for number in everywhere))
    controller = access.nodes.controller()
    cut = next(number for number in everywhere if number != controller)
    access.cut_off(cut)
    await access.revoke()
    revoked = access.loop.now
    await asyncio.sleep(LEASE_S + ELECTION_S + 3.0)
    assert access.allowed_by(cut, revoked), "it decides by its lease for a while"
    access.nodes.world.fabric.heal()
    await asyncio.sleep(2.0)
    await access.grant()
    again = access.loop.now
    await access.nodes.until(lambda: access.allowed_by(cut, again))


async def random_faults(access: Access) -> None:
    dice = random.Random(access.nodes.world.seed)
    until = access.loop.now + 30.0
    changing = access.loop.create_task(_change(access, dice))
    while access.loop.now < until:
        number = dice.randint(1, NODES)
        host = access.nodes.host(number)
        for_s = dice.uniform(0.5, 8.0)
        match dice.choice(("cut off", "cut off", "pause", "kill")):
            case "cut off":
                access.cut_off(number)
                await asyncio.sleep(for_s)
                access.nodes.world.fabric.heal()
            case "pause":
                host.pause()
                await asyncio.sleep(for_s)
                host.resume()
            case _:
                host.crash()
                await asyncio.sleep(for_s)
                access.start_node(number)
        await asyncio.sleep(dice.uniform(0.1, 3.0))
    changing.cancel()
    await asyncio.gather(changing, return_exceptions=True)


async def _change(access: Access, dice: random.Random) -> None:
    while True:
        try:
            await access.grant()
            await asyncio.sleep(dice.uniform(0.5, 3.0))
            await access.revoke()
        except StreamlogError:
            continue  # what was done is unknown: the next grant, or revocation, is acknowledged
        await asyncio.sleep(dice.uniform(3.0, 12.0))


BY_USER = pytest.mark.parametrize("by_user", [False, True], ids=["entry", "user"])


@BY_USER
def test_a_node_that_is_cut_off_grants_no_longer_than_its_lease(*, by_user: bool) -> None:
    access = play(a_follower_that_is_cut_off, 0, by_user=by_user)
    assert access.violations() == []


@BY_USER
def test_a_lease_that_never_ends_is_found(*, by_user: bool) -> None:
    """The planted defect."""
    with mock.patch.object(AccessLease, "refusal", return_value=None):
        access = play(a_follower_that_is_cut_off, 0, by_user=by_user)
    assert access.violations()


@pytest.mark.parametrize(("seed", "by_user"), [(0, False), (2, True)])
def test_random_faults(seed: int, *, by_user: bool) -> None:
    access = play(random_faults, seed, by_user=by_user)
    assert access.violations() == []
    assert any(answer.is_allowed for answer in access.answers)
    assert access.revoked
