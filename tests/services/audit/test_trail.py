"""Events of calls: who, what, on what, allowed or refused; and nothing else of them."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from streamlog.access.acl import Acl, AclOperation, AclResourceType
from streamlog.access.principals import PrincipalMapping
from streamlog.api import request_resources
from streamlog.api.errors import to_rpc
from streamlog.api.pb import admin_pb2, batches_pb2, groups_pb2, records_pb2
from streamlog.api.request_resources import NAME_LENGTH_MAX, RESOURCES_MAX, resources_of
from streamlog.api.service import Requests, parse
from streamlog.controller.link import FORWARDED
from streamlog.errors import ClusterAuthorizationError, InvalidTopicError, StreamlogError
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import AclRecord, MetadataVersionRecord
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, RaftIndex
from streamlog.node.served_methods import streaming_methods, unary_methods
from streamlog.ports import AuditEvent, AuditResource, CallInfo, RpcError
from streamlog.ports.system import SystemClock, ThreadWorkers
from streamlog.services.access.authenticator import Authenticator
from streamlog.services.access.authorizer import Authorizer
from streamlog.services.access.gate import MethodGate
from streamlog.services.access.visible import queried
from streamlog.services.audit.audited_methods import AUDITED_METHODS, AuditKind
from streamlog.services.audit.trail import REFUSALS_MAX, REMEMBERED_MAX, AuditTrail
from streamlog.services.common.paging import TopicEntry
from streamlog.tls.callers import INTERNAL_PREFIX
from streamlog.tls.identity import node_uri
from tests.support.leases import held_lease

ADMIN, BATCHES, RECORDS = "/streamlog.v1.Admin/", "/streamlog.v1.Batches/", "/streamlog.v1.Records/"
SECRET = "hunter2-secret"
HEADER = {"authorization": "Basic d3Jvbmc6d3Jvbmc="}


class Sink:
    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self.dropped = 0

    @property
    def written(self) -> int:
        return len(self.events)

    def write(self, event: AuditEvent) -> None:
        self.events.append(event)


class Messages:
    """A stream that has these requests."""

    def __init__(self, requests: Sequence[Any]) -> None:
        self._left = [request.SerializeToString() for request in requests]

    async def recv(self) -> bytes | None:
        return self._left.pop(0) if self._left else None

    async def send(self, message: bytes) -> None: ...

    async def done_sending(self) -> None: ...


class Setup:
    def __init__(self, *kinds: AuditKind, own_topic: str = "") -> None:
        self.view = MetadataView()
        self.sink = Sink()
        self.view.machine.apply(
            RaftIndex(1), encode_batch([MetadataVersionRecord(level=METADATA_VERSION_MAX), AclRecord(acl=acl("t"))])
        )
        self.authorizer = Authorizer(self.view, enabled=True, super_users=["User:CN=root"])
        passwords = Authenticator(self.view, SystemClock(), random.Random(1), ThreadWorkers())
        self.gate = MethodGate(self.view, self.authorizer, passwords, PrincipalMapping(), held_lease(self.view))
        kinds = kinds or (AuditKind.CHANGES, AuditKind.REFUSALS)
        self.trail = AuditTrail(
            BrokerId(7), self.view, SystemClock(), PrincipalMapping(), kinds, [self.sink], own_topic=own_topic
        )

    async def unary(
        self, method: str, request: Any, work: Callable[[CallInfo], None] = lambda _: None, **who: Any
    ) -> None:
        async def handler(data: bytes, info: CallInfo) -> bytes:
            message = parse(type(request), data, 1 << 20)
            assert info.audit is not None
            info.audit.request(message)
            if info.guard is not None:
                try:
                    info.guard.admit(message)
                except StreamlogError as error:
                    raise to_rpc(error) from None
            work(info)
            return b""

        call = self.trail.unary(method, self.gate.unary(method, handler))
        await call(request.SerializeToString(), caller(method, **who))

    async def stream(self, method: str, *requests: Any, **who: Any) -> None:
        async def handler(stream: Any, info: CallInfo) -> None:
            received = Requests(stream, type(requests[0]), 1 << 20, info.guard, info.audit)
            try:
                while (message := await received.recv()) is not None:
                    for part in getattr(message, "partitions", ()):
                        if info.guard is not None:
                            info.guard.topic_refusal("WRITE", part.topic)
            except StreamlogError as error:
                raise to_rpc(error) from None

        call = self.trail.stream(method, self.gate.stream(method, handler))
        await call(Messages(requests), caller(method, **who))


def acl(name: str) -> Acl:
    return Acl(resource_type=AclResourceType.TOPIC, name=name, principal="User:CN=alice", operation=AclOperation.WRITE)


def caller(method: str, who: str = "CN=alice", **more: Any) -> CallInfo:
    return CallInfo(method=method, peer="10.0.0.1:4", identity=who, **more)


def create(*names: str) -> admin_pb2.CreateTopicsRequest:
    return admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name) for name in names])


def topics(*names: str) -> tuple[AuditResource, ...]:
    return tuple(AuditResource("topic", name) for name in names)


async def test_a_change_that_is_allowed() -> None:
    setup = Setup()
    await setup.unary(ADMIN + "CreateTopics", create("a", "b"), who="CN=root")
    (event,) = setup.sink.events
    assert (event.principal, event.address, event.method) == (
        "User:CN=root",
        "10.0.0.1",
        "streamlog.v1.Admin/CreateTopics",
    )
    assert (event.result, event.resources, event.node, event.error) == ("allowed", topics("a", "b"), 7, "")


async def test_a_change_that_is_refused_names_the_missing_right() -> None:
    setup = Setup()
    with pytest.raises(RpcError):
        await setup.unary(ADMIN + "CreateTopics", create("a", "b"))
    (event,) = setup.sink.events
    assert (event.result, event.operation, event.error) == ("refused", "CREATE", "TOPIC_AUTHORIZATION_FAILED")
    assert event.resources == topics("a", "b")
    assert setup.trail.events == {"allowed": 0, "refused": 1}


async def test_a_change_that_fails_has_its_error() -> None:
    setup = Setup()

    def fail(_: CallInfo) -> None:
        raise to_rpc(InvalidTopicError("no"))

    with pytest.raises(RpcError):
        await setup.unary(ADMIN + "CreateTopics", create("a"), fail, who="CN=root")
    (event,) = setup.sink.events
    assert (event.result, event.error) == ("allowed", "INVALID_TOPIC")


async def test_a_topic_that_is_named_and_may_not_be_seen() -> None:
    """The first call of a producer, which is all that one without any right does."""
    setup = Setup(*AuditKind)
    names = [*(f"u{number}" for number in range(2 * REFUSALS_MAX)), "t"]

    def look(info: CallInfo) -> None:
        queried([TopicEntry(name, b"") for name in names], names, info.guard)

    await setup.unary(BATCHES + "Metadata", batches_pb2.MetadataRequest(topics=["t", *names]), look)
    *refused, allowed = setup.sink.events
    assert {(event.result, event.operation) for event in refused} == {("refused", "DESCRIBE")}
    assert [event.resources for event in refused] == [topics(name) for name in names[:REFUSALS_MAX]]
    assert (allowed.result, allowed.resources[0]) == ("allowed", *topics("t"))


async def test_a_login_that_fails() -> None:
    setup = Setup()
    with pytest.raises(RpcError):
        await setup.unary(ADMIN + "ListTopics", admin_pb2.ListTopicsRequest(), metadata={"authorization": SECRET})
    (event,) = setup.sink.events
    assert (event.result, event.error, event.principal) == ("refused", "SASL_AUTHENTICATION_FAILED", "User:CN=alice")
    assert SECRET.encode() not in msgspec.json.encode(event)


async def test_a_login_that_is_not_checked_after_too_many_failed_ones() -> None:
    setup = Setup()
    for _ in range(20):
        setup.gate.logins._throttle.failed("bob", "10.0.0.1")
    header = "Basic " + base64.b64encode(b"bob:guess").decode()
    with pytest.raises(RpcError, match="too many failed logins"):
        await setup.unary(ADMIN + "ListTopics", admin_pb2.ListTopicsRequest(), metadata={"authorization": header})
    (event,) = setup.sink.events
    assert (event.result, event.error) == ("refused", "THROTTLED")


async def test_reads_and_writes_are_events_by_choice() -> None:
    request = records_pb2.PublishRequest(topic="t", records=[records_pb2.PublishRecord(value=SECRET.encode())])
    silent = Setup()
    await silent.unary(RECORDS + "Publish", request)
    await silent.unary(ADMIN + "ListTopics", admin_pb2.ListTopicsRequest())
    assert silent.sink.events == []
    wanted = Setup(AuditKind.WRITES, AuditKind.READS)
    await wanted.unary(RECORDS + "Publish", request)
    await wanted.unary(ADMIN + "ListTopics", admin_pb2.ListTopicsRequest())
    write, read = wanted.sink.events
    assert (write.resources, read.resources, read.method) == (topics("t"), (), "streamlog.v1.Admin/ListTopics")
    assert SECRET.encode() not in msgspec.json.encode(write)
    with pytest.raises(RpcError):
        await wanted.unary(RECORDS + "Publish", records_pb2.PublishRequest(topic="u"))
    assert len(wanted.sink.events) == 2, "refusals were not wanted"


async def test_the_event_of_a_refusal_has_the_beginning_of_a_long_name() -> None:
    """Else 640 calls without a login would fill the files of the log, and rotation deletes what was in them."""
    setup = Setup()
    request = groups_pb2.FindCoordinatorRequest(groups=["g" * 1_000_000])
    with pytest.raises(RpcError):
        await setup.unary("/streamlog.v1.Groups/FindCoordinator", request)
    (event,) = setup.sink.events
    assert event.resources == (AuditResource("group", "g" * NAME_LENGTH_MAX),)
    assert len(msgspec.json.encode(event)) < 2_000


async def test_a_stream_has_an_event_for_each_new_topic_and_each_refusal() -> None:
    setup = Setup(AuditKind.WRITES, AuditKind.REFUSALS)
    requests = [
        batches_pb2.ProduceStreamRequest(partitions=[batches_pb2.PartitionBatches(topic=name)])
        for name in ("t", "t", "u", "u", "t")
    ]
    await setup.stream(BATCHES + "ProduceStream", *requests)
    found = [(event.result, event.resources, event.operation) for event in setup.sink.events]
    assert found == [("allowed", topics("t"), ""), ("refused", topics("u"), "WRITE")]


async def test_what_a_stream_remembers_is_bounded() -> None:
    setup = Setup()
    count = 3 * REMEMBERED_MAX
    requests = [
        batches_pb2.ProduceStreamRequest(partitions=[batches_pb2.PartitionBatches(topic=f"u{number}")])
        for number in range(count)
    ]
    await setup.stream(BATCHES + "ProduceStream", *requests)
    assert setup.trail.events["refused"] == count


async def test_the_audit_topic_is_not_its_own_subject() -> None:
    """Its writes would be events, and these writes; a change of it is an event."""
    setup = Setup(*AuditKind, own_topic="audit")
    one = batches_pb2.ProduceRequest(partitions=[batches_pb2.PartitionBatches(topic="audit")])
    await setup.unary(BATCHES + "Produce", one, who="CN=node-1", names=(node_uri(1),))
    await setup.stream(
        BATCHES + "ProduceStream",
        batches_pb2.ProduceStreamRequest(partitions=one.partitions),
        who="CN=node-1",
        names=(node_uri(1),),
    )
    assert setup.sink.events == []
    await setup.unary(ADMIN + "DeleteTopics", admin_pb2.DeleteTopicsRequest(topics=["audit"]), who="CN=root")
    assert setup.sink.events[0].resources == topics("audit")


async def test_a_node_is_named_and_a_call_that_it_forwards_is_marked() -> None:
    setup = Setup()
    who: dict[str, Any] = {"who": "CN=node-2", "names": (node_uri(2),), "metadata": {FORWARDED: "1"}}
    await setup.unary(ADMIN + "DeleteTopics", admin_pb2.DeleteTopicsRequest(topics=["x"]), **who)
    (event,) = setup.sink.events
    assert (event.principal, event.forwarded) == ("Node:2", True)


@pytest.mark.parametrize("names", [(), ("spiffe://other/node/2",)])
async def test_a_client_cannot_have_its_call_marked_as_forwarded(names: tuple[str, ...]) -> None:
    """The mark says that another event is the one to look at."""
    setup = Setup()
    request = admin_pb2.DeleteTopicsRequest(topics=["x"])
    await setup.unary(ADMIN + "DeleteTopics", request, who="CN=root", names=names, metadata={FORWARDED: "1"})
    assert [event.forwarded for event in setup.sink.events] == [False]


async def cancelled(call: Awaitable[object], *, after: asyncio.Event) -> None:
    task = asyncio.ensure_future(call)
    await after.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_that_is_cancelled_before_its_login_is_checked_was_not_allowed() -> None:
    setup = Setup()
    began = asyncio.Event()

    async def gate(_: bytes, info: CallInfo) -> bytes:
        began.set()
        return await asyncio.get_running_loop().create_future()

    method = ADMIN + "DeleteTopics"
    await cancelled(setup.trail.unary(method, gate)(b"", caller(method, "", metadata=HEADER)), after=began)
    assert setup.sink.events == []


async def test_a_change_that_is_cancelled_may_have_been_made() -> None:
    setup = Setup()
    began = asyncio.Event()

    async def handler(_: bytes, info: CallInfo) -> bytes:
        assert info.audit is not None
        info.audit.request(create("a"))
        began.set()
        return await asyncio.get_running_loop().create_future()

    method = ADMIN + "CreateTopics"
    await cancelled(setup.trail.unary(method, handler)(b"", caller(method, "CN=root")), after=began)
    (event,) = setup.sink.events
    assert (event.result, event.resources, event.error) == ("allowed", topics("a"), "CANCELLED")


async def test_a_stream_that_its_client_cancels_has_no_error() -> None:
    setup = Setup(AuditKind.READS)
    began = asyncio.Event()

    async def handler(_: bytes, info: CallInfo) -> bytes:
        assert info.audit is not None
        info.audit.request(batches_pb2.WatchMetadataRequest())
        began.set()
        return await asyncio.get_running_loop().create_future()

    method = BATCHES + "WatchMetadata"
    await cancelled(setup.trail.stream(method, handler)(b"", caller(method)), after=began)
    assert [(event.result, event.error) for event in setup.sink.events] == [("allowed", "")]


async def test_methods_between_nodes_have_events_of_refusals_only() -> None:
    setup = Setup(*AuditKind)
    method = INTERNAL_PREFIX + "v1.Controller/Heartbeat"

    async def served(_: bytes, info: CallInfo) -> bytes:
        assert info.audit is None
        return b""

    async def refused(_: bytes, info: CallInfo) -> bytes:
        raise to_rpc(ClusterAuthorizationError("for nodes only"))

    await setup.trail.unary(method, served)(b"", caller(method))
    assert setup.sink.events == []
    with pytest.raises(RpcError):
        await setup.trail.unary(method, refused)(b"", caller(method))
    assert [event.error for event in setup.sink.events] == ["CLUSTER_AUTHORIZATION_FAILED"]


async def test_an_error_in_the_code_is_an_event_too() -> None:
    setup = Setup()

    def fail(_: CallInfo) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await setup.unary(ADMIN + "DeleteUser", admin_pb2.DeleteUserRequest(name="bob"), fail, who="CN=root")
    assert [(event.result, event.error) for event in setup.sink.events] == [("allowed", "UNKNOWN")]


def test_every_method_for_clients_has_a_row() -> None:
    served = {name for name in (*unary_methods(), *streaming_methods()) if not name.startswith(INTERNAL_PREFIX)}
    served -= {name for name in served if "/streamlog.raft" in name}
    assert served == set(AUDITED_METHODS)


def _resources(message: object) -> list[tuple[str, str]]:
    return [(one.type, one.name) for one in resources_of(message, lambda topic_id: f"topic-{topic_id.hex()}")]


def test_names_but_no_values_of_a_request() -> None:
    pb = admin_pb2
    change = pb.ConfigChange(name="retention.ms", value=SECRET)
    request = pb.AlterConfigsRequest(
        alterations=[
            pb.ConfigAlteration(
                resource=pb.ConfigResource(type=pb.CONFIG_RESOURCE_TYPE_TOPIC, name="t"), changes=[change]
            ),
            pb.ConfigAlteration(resource=pb.ConfigResource(type=pb.CONFIG_RESOURCE_TYPE_BROKER), changes=[change]),
        ]
    )
    assert _resources(request) == [("topic", "t"), ("config", "retention.ms"), ("node", "all nodes")]
    salted = pb.SaltedPassword(salt=b"salt" * 4, hash=b"hash" * 8)
    assert _resources(pb.CreateUserRequest(name="bob", password=salted)) == [("user", "bob")]
    entry = pb.AclEntry(
        resource_type=pb.ACL_RESOURCE_TYPE_TOPIC, resource_name="o", principal="User:a", operation=pb.ACL_OPERATION_READ
    )
    assert _resources(pb.CreateAclsRequest(acls=[entry])) == [("acl", "ALLOW User:a READ on TOPIC o from *")]
    odd = pb.AclEntry(resource_type=99, operation=98, permission=97)  # type: ignore[arg-type]
    assert _resources(pb.DeleteAclsRequest(filters=[odd])) == [("acl", "97  98 on 99  from *")]
    assert _resources(pb.DeleteTopicsRequest(topic_ids=[b"\x01"])) == [("topic", "topic-01")]
    assert _resources(pb.DrainNodeRequest(node_id=3)) == [("node", "3")]
    configured = pb.NewTopic(name="n", configs={"a": SECRET})
    assert _resources(pb.CreateTopicsRequest(topics=[configured])) == [("topic", "n")]


def test_the_names_of_one_event_are_bounded() -> None:
    found = _resources(create(*(f"t{number}" for number in range(RESOURCES_MAX + 9)), "x" * 5_000))
    assert (len(found), found[-1]) == (RESOURCES_MAX + 1, ("more", "10"))
    assert all(len(name) <= 300 for _, name in _resources(create("x" * 5_000)))


def test_only_the_beginning_of_a_large_request_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its handler counts: a request of 4 MB may have two million empty messages, which took nine seconds."""
    monkeypatch.setattr(request_resources, "WALKED_MAX", 10)
    names = [f"t{number}" for number in range(6)]
    assert _resources(create(*names[:4])) == [("topic", name) for name in names[:4]]
    assert _resources(create(*names)) == [*(("topic", name) for name in names[:5]), ("more", "0 or more")]


def test_numbers_hide_no_name_that_follows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_resources, "WALKED_MAX", 10)
    owned = groups_pb2.TopicPartitions(topic_id=bytes(16), partitions=range(50))
    request = groups_pb2.GroupHeartbeatRequest(
        group="g",
        owned=groups_pb2.MemberPartitions(topics=[owned]),
        subscription=groups_pb2.GroupSubscription(topics=["t"]),
    )
    assert {("group", "g"), ("topic", "t")} <= set(_resources(request))
    assert not any(kind == "more" for kind, _ in _resources(request))
