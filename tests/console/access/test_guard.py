"""Each changing method of the admin client: checked before it is called, recorded without values."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from streamlog.access.acl import Acl, AclOperation, AclResourceType
from streamlog.access.quotas import QuotaEntity
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import (
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ElectionType,
    NewTopic,
    Reassignment,
    ReplicaOnNode,
    TopicGrowth,
)
from streamlog.console import guard
from streamlog.console.access.caller import Recording, User, acting_as
from streamlog.console.access.roles import LEAST_ROLE, Action, UserRole
from streamlog.console.access.values import NOTHING, Protection
from streamlog.errors import InvalidRequestError
from streamlog.model import PartitionId, TopicPartition

AT = TopicPartition("orders", PartitionId(0))
CHANGE = ConfigChange(name="retention.ms", value="secret")

ENTRY = Acl(resource_type=AclResourceType.TOPIC, name="orders", principal="User:alice", operation=AclOperation.READ)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], Action, str]] = [
    ("create_topics", ([NewTopic(name="a"), NewTopic(name="b")],), {}, Action.TOPIC_CREATE, "topics a, b"),
    ("delete_records", ({AT: 5},), {}, Action.RECORD_DELETE, "partitions orders-0"),
    ("create_topic", ("a",), {"configs": {"x": "secret"}}, Action.TOPIC_CREATE, "topic a"),
    ("delete_topics", (["a", "b"],), {}, Action.TOPIC_DELETE, "topics a, b"),
    ("delete_topic", ("a",), {}, Action.TOPIC_DELETE, "topic a"),
    ("create_partitions", ([TopicGrowth(topic="a", partition_count=9)],), {}, Action.TOPIC_GROW, "topics a"),
    ("grow_topic", ("a", 9), {}, Action.TOPIC_GROW, "topic a to 9"),
    (
        "alter_configs",
        ([ConfigAlteration(resource=ConfigResource.topic("a"), changes=[CHANGE])],),
        {},
        Action.TOPIC_CONFIG,
        "settings of topic a: retention.ms",
    ),
    (
        "alter_config",
        (ConfigResource.topic("a"), [CHANGE]),
        {},
        Action.TOPIC_CONFIG,
        "settings of topic a: retention.ms",
    ),
    (
        "alter_config",
        (ConfigResource.broker(1), [CHANGE]),
        {},
        Action.NODE_CONFIG,
        "settings of broker 1: retention.ms",
    ),
    (
        "alter_config",
        (),
        {"resource": ConfigResource.all_brokers(), "changes": [CHANGE]},
        Action.NODE_CONFIG,
        "settings of broker (all): retention.ms",
    ),
    ("elect_leaders", (), {}, Action.ELECTION_PREFERRED, "all partitions"),
    ("elect_leaders", ([AT],), {"kind": ElectionType.UNCLEAN}, Action.ELECTION_UNCLEAN, "partitions orders-0"),
    (
        "alter_partition_reassignments",
        ([Reassignment(at=AT, replicas=[1])],),
        {},
        Action.REASSIGNMENT,
        "partitions orders-0",
    ),
    (
        "alter_replica_log_dirs",
        ({ReplicaOnNode("orders", 0, 2): "/disk2"},),
        {},
        Action.REASSIGNMENT,
        "replicas orders-0 on node 2",
    ),
    ("repair_replicas", ("orders", 0), {}, Action.REPLICA_REPAIR, "partition orders-0"),
    ("alter_broker_loggers", (2, {"raft": None}), {}, Action.NODE_CONFIG, "log levels of node 2"),
    ("drain_node", (2,), {}, Action.NODE_DRAIN, "node 2"),
    ("cancel_drain", (2,), {}, Action.NODE_DRAIN, "node 2, cancelled"),
    ("unregister_node", (2,), {}, Action.NODE_UNREGISTER, "node 2"),
    ("add_voter", (2,), {}, Action.QUORUM_CHANGE, "add node 2"),
    ("remove_voter", (2,), {}, Action.QUORUM_CHANGE, "remove node 2"),
    ("update_metadata_version", (2,), {}, Action.METADATA_VERSION, "level 2"),
    ("delete_groups", (["g"],), {}, Action.GROUP_DELETE, "groups g"),
    ("delete_group_offsets", ("g", iter([AT])), {}, Action.GROUP_OFFSETS, "deleted of group g"),
    ("alter_group_offsets", ("g", {AT: 5}), {}, Action.GROUP_OFFSETS, "group g, partitions orders-0"),
    ("abort_transaction", ("tx",), {}, Action.TRANSACTION_END, "transactional id tx"),
    (
        "end_prepared_transaction",
        ("tx", None),
        {"commit": True},
        Action.TRANSACTION_END,
        "transactional id tx",
    ),
    ("abort_hanging_transaction", (AT, 5), {}, Action.TRANSACTION_END, "producer 5 in partition orders-0"),
    (
        "create_acls",
        ([ENTRY],),
        {},
        Action.NODE_CONFIG,
        "access control list entries ALLOW User:alice READ on topic orders from *",
    ),
    ("delete_acls", ([str(ENTRY)],), {}, Action.NODE_CONFIG, f"access control list entries {ENTRY}"),
    (
        "alter_client_quotas",
        ({QuotaEntity(user="alice"): {"producer_byte_rate": 1.0}},),
        {},
        Action.QUOTA_CHANGE,
        "quotas of user alice: producer_byte_rate",
    ),
    ("create_user", ("alice", "secret"), {}, Action.NODE_CONFIG, "new user alice"),
    ("rotate_user", ("alice", "secret"), {}, Action.NODE_CONFIG, "password of user alice"),
    ("delete_user", ("alice",), {}, Action.NODE_CONFIG, "deleted user alice"),
]


class Fake(AsyncAdmin):
    """Counts calls that reach the client."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name == "calls":
            return super().__getattribute__(name)
        real = getattr(AsyncAdmin, name)
        calls = self.calls

        async def call(*_: Any, **__: Any) -> None:
            calls.append(name)

        import inspect

        signature = inspect.signature(real)
        call.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
        return call


class FakeCaller:
    def __init__(self, user: User | None) -> None:
        self.user = user
        self.lines: list[tuple[Action, str, str]] = []

    async def verified(self) -> User | None:
        return self.user

    def attempt(self, user: User | None, action: Action, target: str) -> Recording:
        lines = self.lines

        class Recorded:
            async def refused(self, why: str) -> None:
                lines.append((action, target, "refused"))

            async def begin(self) -> None: ...

            async def end(self, result: str) -> None:
                lines.append((action, target, result))

        return Recorded()

    def protection(self, topic: str, role: UserRole) -> Protection:
        return NOTHING


@pytest.mark.parametrize(
    "user", [None, *(User(role.label, role) for role in UserRole)], ids=lambda one: one and one.name
)
@pytest.mark.parametrize(("name", "given", "named", "action", "target"), CALLS)
async def test_each_change_with_each_role(
    name: str, given: tuple[Any, ...], named: dict[str, Any], action: Action, target: str, user: User | None
) -> None:
    admin, caller = Fake(), FakeCaller(user)
    allowed = user is not None and user.role >= LEAST_ROLE[action]
    with acting_as(caller), suppress(InvalidRequestError):
        await getattr(guard.guarded(admin), name)(*given, **named)
    assert admin.calls == [name] * allowed
    assert caller.lines == [(action, target, "done" if allowed else "refused")]


def test_all_changes_are_tried_here() -> None:
    assert {name for name, *_ in CALLS} == set(guard.CHANGES)


async def test_a_read_needs_no_role_and_an_unknown_method_is_refused() -> None:
    admin = Fake()
    await guard.guarded(admin).describe_cluster()
    assert admin.calls == ["describe_cluster"]
    for name in ("close", "start", "new_method"):
        with pytest.raises(InvalidRequestError, match="not available"):
            getattr(guard.guarded(admin), name)


async def test_a_record_is_not_written_without_the_role() -> None:
    caller = FakeCaller(User("v", UserRole.VIEWER))
    with acting_as(caller), pytest.raises(InvalidRequestError, match="needs role operator"):
        await guard.write_record({}, "orders", b"secret", key=b"secret")
    assert caller.lines == [(Action.RECORD_WRITE, "topic orders", "refused")]


def test_without_a_page_nothing_is_permitted() -> None:
    from streamlog.console.access.caller import current_user

    with pytest.raises(RuntimeError):
        current_user()
