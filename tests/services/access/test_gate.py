"""The gate around a node's methods: who is let in, what calls may do, and streams that lose their right."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.access import acl as acl_module
from streamlog.access.acl import CLUSTER_NAME, Acl, AclOperation, AclPermission, AclResourceType, PatternType
from streamlog.access.passwords import SaltedPassword
from streamlog.access.principals import PrincipalMapping, parse_mapping_rules
from streamlog.access.throttle import PAUSE_MAX_S
from streamlog.api.errors import from_rpc
from streamlog.api.pb import admin_pb2, common_pb2, groups_pb2, records_pb2
from streamlog.api.request_attributes import request_attributes
from streamlog.api.request_resources import NAME_LENGTH_MAX
from streamlog.api.requests import PartitionRef
from streamlog.errors import (
    BrokerNotAvailableError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    SaslAuthenticationError,
    Status,
    StreamlogError,
    ThrottledError,
    TopicAuthorizationError,
)
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import (
    AclRecord,
    MetadataRecord,
    MetadataVersionRecord,
    RemoveAclRecord,
    RemoveUserRecord,
    UserRecord,
)
from streamlog.metadata.view import MetadataView
from streamlog.model import PartitionId, RaftIndex
from streamlog.node.metrics.access import access_families
from streamlog.node.served_methods import streaming_methods, unary_methods
from streamlog.ports import CallGuard, CallInfo, RpcError, SpanKind, Stream
from streamlog.ports.system import SystemClock, ThreadWorkers
from streamlog.ports.tracing import AttributeValue
from streamlog.services.access import authenticator as authenticator_module
from streamlog.services.access import gate as gate_module
from streamlog.services.access import guard as guard_module
from streamlog.services.access.authenticator import Authenticator
from streamlog.services.access.authorizer import Authorizer
from streamlog.services.access.gate import MethodGate
from streamlog.services.access.guard import Guard
from streamlog.services.access.method_rights import METHOD_RIGHTS
from streamlog.services.access.visible import listed, queried
from streamlog.services.batches.partition_leader import PartitionLeaders
from streamlog.services.common.paging import TopicEntry
from streamlog.tls.callers import INTERNAL_PREFIX
from streamlog.tls.identity import node_uri
from tests.support.leases import held_lease
from tests.support.node_spans import SpanStore

FETCH, HEARTBEAT = "/streamlog.v1.Batches/FetchStream", "/streamlog.v1.Groups/GroupHeartbeat"
ALICE = SaltedPassword(salt=b"s" * 16, hash=b"h" * 32)
PASSWORDS = {"right": ALICE}


class Setup:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, **how: Any) -> None:
        self.view = MetadataView()
        self.index = 0
        self.checked = 0
        monkeypatch.setattr(authenticator_module, "is_password", self._is_password)
        self.authorizer = Authorizer(self.view, enabled=True, **how)
        self.workers = ThreadWorkers()
        self.passwords = Authenticator(self.view, SystemClock(), random.Random(1), self.workers)
        mapping = PrincipalMapping(
            parse_mapping_rules("RULE:CN=(.*)/$1/"), {"PARTNERS": parse_mapping_rules("RULE:CN=(.*)/partner-$1/")}
        )
        self.lease_s = 3_600.0
        lease = held_lease(self.view, lambda: self.lease_s)
        self.gate = MethodGate(self.view, self.authorizer, self.passwords, mapping, lease)
        self.apply(MetadataVersionRecord(level=METADATA_VERSION_MAX))

    def _is_password(self, stored: SaltedPassword, password: str) -> bool:
        self.checked += 1
        return PASSWORDS.get(password) == stored

    def apply(self, *records: MetadataRecord) -> None:
        self.index += 1
        self.view.machine.apply(RaftIndex(self.index), encode_batch(records))

    def stream_guard(self) -> Guard:
        """Of the stream that is open."""
        (own,) = self.gate._open
        assert own.guard is not None
        return own.guard

    async def call(self, info: CallInfo, work: Callable[[CallInfo], None] = lambda _: None) -> None:
        async def handler(request: bytes, info: CallInfo) -> bytes:
            work(info)
            return b""

        await self.gate.unary(info.method, handler)(b"", info)

    async def refusal(self, info: CallInfo, work: Callable[[CallInfo], None] = lambda _: None) -> StreamlogError:
        with pytest.raises((RpcError, StreamlogError)) as caught:
            await self.call(info, work)
        error = caught.value
        found = from_rpc(error) if isinstance(error, RpcError) else error
        assert isinstance(found, StreamlogError)
        return found


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Setup:
    return Setup(monkeypatch)


def info(
    who: str = "CN=alice", *, password: str | None = None, method: str = HEARTBEAT, peer: str = "10.0.0.1:4"
) -> CallInfo:
    header = base64.b64encode(f"{who}:{password}".encode()).decode()
    return CallInfo(
        method=method,
        peer=peer,
        identity="CN=apps" if password is not None else who,
        metadata={} if password is None else {"authorization": f"Basic {header}"},
    )


def acl(operation: AclOperation, name: str, kind: AclResourceType = AclResourceType.TOPIC, **how: Any) -> Acl:
    return Acl(resource_type=kind, name=name, principal="User:alice", operation=operation, **how)


def heartbeat(call: CallInfo) -> None:
    assert call.guard is not None
    request = groups_pb2.GroupHeartbeatRequest(group="g", subscription=groups_pb2.GroupSubscription(topics=["t"]))
    call.guard.admit(request)


async def test_the_span_of_a_call_names_its_principal(setup: Setup) -> None:
    store = SpanStore(lambda: 0.0, ratio=1.0)
    span = store.of(1).start("call", SpanKind.SERVER, {})
    assert span is not None
    seen: list[dict[str, AttributeValue]] = []
    await setup.call(replace(info(), span=span), lambda call: seen.append(request_attributes(call)))
    assert span.attributes["user.name"] == "User:alice"
    assert seen[0]["user.name"] == "User:alice"  # of its batches
    assert seen[0]["tls.client.subject"] == "CN=alice"


def test_every_method_for_clients_has_a_row() -> None:
    served = {name for name in (*unary_methods(), *streaming_methods()) if not name.startswith(INTERNAL_PREFIX)}
    assert set(METHOD_RIGHTS) == served


async def test_a_method_without_a_row_is_refused(setup: Setup) -> None:
    with pytest.raises(RpcError) as caught:
        await setup.call(info(method="/streamlog.v1.Batches/New"))
    assert caught.value.status is Status.PERMISSION_DENIED


async def test_nodes_and_super_users_may_do_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, super_users=["User:root"])
    seen: list[object] = []
    await setup.call(info("CN=root"), lambda call: seen.append(call.guard))
    await setup.call(replace(info("CN=x"), names=(node_uri(3),)), lambda call: seen.append(call.guard))
    assert seen == [None, None]


async def test_a_listener_may_have_its_own_rules_for_certificates(setup: Setup) -> None:
    setup.apply(
        AclRecord(acl=acl(AclOperation.READ, "g", AclResourceType.GROUP)), AclRecord(acl=acl(AclOperation.READ, "t"))
    )
    await setup.call(info(), heartbeat)
    await setup.call(replace(info(), listener="CLIENT"), heartbeat)
    refused = await setup.refusal(replace(info(), listener="PARTNERS"), heartbeat)
    assert "User:partner-alice may not READ group 'g'" in refused.message


async def test_a_client_may_do_what_its_entries_say(setup: Setup) -> None:
    assert isinstance(await setup.refusal(info(), heartbeat), GroupAuthorizationError)
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "g", AclResourceType.GROUP)))
    refused = await setup.refusal(info(), heartbeat)
    assert isinstance(refused, TopicAuthorizationError)
    assert "User:alice may not DESCRIBE topic 't'" in refused.message
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "t")))
    await setup.call(info(), heartbeat)
    setup.apply(AclRecord(acl=acl(AclOperation.DESCRIBE, "t", permission=AclPermission.DENY, host="10.0.0.2")))
    await setup.call(info(), heartbeat)
    assert isinstance(await setup.refusal(info(peer="10.0.0.2:9"), heartbeat), TopicAuthorizationError)


async def test_a_transaction_is_aborted_by_who_may_write_its_id(setup: Setup) -> None:
    """A hanging one, whose id is unknown, by an administrator only."""
    by_id = admin_pb2.AbortTransactionRequest(transactional_id="spark-sink/q")
    hanging = admin_pb2.AbortTransactionRequest(partition=common_pb2.TopicPartition(topic="t"), producer_id=7)
    both = admin_pb2.AbortTransactionRequest(transactional_id="spark-sink/q", partition=hanging.partition)

    def admits(request: admin_pb2.AbortTransactionRequest) -> Callable[[CallInfo], None]:
        return lambda call: None if call.guard is None else call.guard.admit(request)

    method = info(method="/streamlog.v1.Admin/AbortTransaction")
    assert isinstance(await setup.refusal(method, admits(by_id)), ClusterAuthorizationError)
    setup.apply(AclRecord(acl=acl(AclOperation.WRITE, "spark-sink/q", AclResourceType.TRANSACTIONAL_ID)))
    await setup.call(method, admits(by_id))
    for request in (hanging, both):
        assert isinstance(await setup.refusal(method, admits(request)), ClusterAuthorizationError)
    setup.apply(AclRecord(acl=acl(AclOperation.ALTER, CLUSTER_NAME, AclResourceType.CLUSTER)))
    for request in (by_id, hanging, both):
        await setup.call(method, admits(request))


async def test_a_name_that_a_request_has_many_times_is_looked_up_once(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "t")))
    looked_up: list[str] = []
    may = Guard.may

    def look(guard: Guard, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        looked_up.append(name)
        return may(guard, operation, kind, name)

    monkeypatch.setattr(Guard, "may", look)

    def admit(call: CallInfo) -> None:
        assert isinstance(call.guard, Guard)
        call.guard.require(AclOperation.READ, AclResourceType.TOPIC, *["t"] * 1_000)

    await setup.call(info(method=FETCH), admit)
    assert looked_up == ["t"]


async def test_refusals_are_counted_by_resource(setup: Setup) -> None:
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "t")))
    await setup.refusal(info(), heartbeat)  # the group is refused before the topic is looked at
    setup.apply(
        AclRecord(acl=acl(AclOperation.READ, "g", AclResourceType.GROUP)),
        RemoveAclRecord(acl=acl(AclOperation.READ, "t")),
    )
    await setup.refusal(info(), heartbeat)

    def looks(call: CallInfo) -> None:
        assert call.guard is not None
        assert call.guard.topic_refusal("WRITE", "t") is not None
        assert call.guard.creation_refusal("new") is not None
        assert call.guard.topic_refusal("DESCRIBE", "t") is not None  # only left out of an answer
        assert not call.guard.may_list("GROUP", "other")
        view = setup.view
        unknown = TopicEntry("t", b"", error=None)
        assert list(listed([unknown], call.guard)) == []
        (asked,) = queried([unknown], ["t"], call.guard)  # named: an answer of its own, which counts
        assert isinstance(asked.error, TopicAuthorizationError)
        offsets = PartitionLeaders(None, view).guarded(call.guard, "DESCRIBE")  # type: ignore[arg-type]  # not reached
        with pytest.raises(TopicAuthorizationError):
            offsets.leader(PartitionRef(topic="t", topic_id=None, partition=PartitionId(0)))

    await setup.call(info(), looks)
    families = {family.name: dict(family.samples) for family in access_families(setup.authorizer, setup.passwords)}
    assert families["streamlog_authorization_refused_total"] == {
        ("topic",): 5,
        ("group",): 1,
        ("transactional_id",): 0,
        ("cluster",): 0,
    }


async def test_a_password_is_checked_once(setup: Setup) -> None:
    setup.apply(UserRecord(name="alice", password=ALICE))
    seen: list[str] = []
    await asyncio.gather(
        *(setup.call(info("alice", password="right"), lambda c: seen.append(str(c.guard))) for _ in range(5))
    )
    await setup.call(info("alice", password="right", peer="10.0.0.9:1"))
    assert (setup.checked, len(seen)) == (1, 5)
    assert (setup.passwords.accepted, setup.passwords.refused) == (1, 0)
    setup.apply(UserRecord(name="alice", password=replace(ALICE, salt=b"t" * 16)))
    assert isinstance(await setup.refusal(info("alice", password="right")), SaslAuthenticationError)
    setup.apply(RemoveUserRecord(name="alice"))
    assert isinstance(await setup.refusal(info("alice", password="right")), SaslAuthenticationError)


@pytest.mark.parametrize(
    "change", [RemoveUserRecord(name="alice"), UserRecord(name="alice", password=replace(ALICE, salt=b"t" * 16))]
)
async def test_a_user_that_changes_between_its_check_and_its_call_is_refused(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, change: MetadataRecord
) -> None:
    """A stream would have the new password, or none, as the one that it began with, and go on."""
    setup.apply(UserRecord(name="alice", password=ALICE))
    checked = setup.passwords._end

    def end(digest: bytes, done: asyncio.Future[str]) -> None:
        checked(digest, done)
        setup.apply(change)

    monkeypatch.setattr(setup.passwords, "_end", end)
    refused = await setup.refusal(info("alice", password="right"))
    assert isinstance(refused, SaslAuthenticationError)
    assert setup.passwords.accepted == 1


async def test_guessing_is_slowed_down(setup: Setup) -> None:
    setup.apply(UserRecord(name="alice", password=ALICE))
    found = [await setup.refusal(info("alice", password="wrong")) for _ in range(20)]
    assert setup.checked < 10
    assert [type(error) for error in found] == [SaslAuthenticationError] * setup.checked + [ThrottledError] * (
        20 - setup.checked
    )
    assert (setup.passwords.accepted, setup.passwords.refused) == (0, 20)


async def test_one_whose_password_is_guessed_by_others_is_to_try_again(setup: Setup) -> None:
    setup.apply(UserRecord(name="alice", password=ALICE))
    await setup.call(info("alice", password="right", peer="10.0.0.2:1"))
    for _ in range(20):
        await setup.refusal(info("alice", password="wrong", peer="10.0.0.66:1"))
    await setup.call(info("alice", password="right", peer="10.0.0.3:1"))  # this node has checked the password
    setup.passwords._remembered.clear()  # as at another node
    error = await setup.refusal(info("alice", password="right", peer="10.0.0.3:1"))
    assert isinstance(error, ThrottledError)
    assert error.message.startswith("too many failed logins of this user, or from address 10.0.0.3: the next")
    assert 0 < int(str(error.details["retry_after_ms"])) <= 1_000 * PAUSE_MAX_S["user"]


@pytest.mark.parametrize("header", ["", "Basic", "Basic !", "Token x", "Basic " + "QQ" * 4_000, "Basic QUFB"])
async def test_a_header_that_cannot_be_read(setup: Setup, header: str) -> None:
    broken = replace(info(), metadata={"authorization": header})
    assert isinstance(await setup.refusal(broken), SaslAuthenticationError)
    assert (setup.checked, setup.passwords.refused) == (0, 1)


class NoStream:
    async def send(self, message: bytes) -> None: ...

    async def recv(self) -> bytes | None:
        return None

    async def done_sending(self) -> None: ...


def reads_t(guard: CallGuard) -> None:
    assert guard.topic_refusal("READ", "t") is None


async def open_stream(setup: Setup, call: CallInfo, use: Callable[[CallGuard], None] = reads_t) -> asyncio.Task[None]:
    """One that uses these rights, until it is ended."""
    began = asyncio.Event()

    async def handler(stream: Stream, own: CallInfo) -> None:
        assert own.guard is not None
        use(own.guard)
        began.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.Event().wait())

    serve: Callable[[Stream, CallInfo], Awaitable[None]] = setup.gate.stream(call.method, handler)
    task = asyncio.ensure_future(serve(NoStream(), call))
    await began.wait()
    return task


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (RemoveAclRecord(acl=acl(AclOperation.READ, "t")), TopicAuthorizationError),
        (AclRecord(acl=acl(AclOperation.ALL, "t", permission=AclPermission.DENY)), TopicAuthorizationError),
        (RemoveUserRecord(name="alice"), SaslAuthenticationError),
        (UserRecord(name="alice", password=replace(ALICE, salt=b"t" * 16)), SaslAuthenticationError),
    ],
    ids=repr,
)
async def test_a_stream_ends_with_its_right(setup: Setup, change: MetadataRecord, error: type[StreamlogError]) -> None:
    setup.apply(UserRecord(name="alice", password=ALICE), AclRecord(acl=acl(AclOperation.READ, "t")))
    task = await open_stream(setup, info("alice", password="right", method=FETCH))
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "u")), UserRecord(name="bob", password=ALICE))
    await asyncio.wait([task], timeout=0.01)
    assert not task.done(), "other changes do not end it"
    setup.apply(change)
    with pytest.raises(RpcError) as caught:
        await asyncio.wait_for(task, 5)
    assert isinstance(from_rpc(caught.value), error)
    assert setup.gate.open_streams == 0


async def end_of(task: asyncio.Task[None]) -> StreamlogError | RpcError:
    with pytest.raises(RpcError) as caught:
        await asyncio.wait_for(task, 5)
    return from_rpc(caught.value)


async def test_what_a_stream_remembers_is_bounded(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has used more rights ends at any change."""
    monkeypatch.setattr(guard_module, "REMEMBERED_MAX", 3)
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "t", pattern_type=PatternType.PREFIXED)))
    task = await open_stream(setup, info(method=FETCH))
    guard = setup.stream_guard()
    for number in range(10):
        assert guard.topic_refusal("READ", f"u{number}") is not None  # no change of these would end it
    for name in ("t", "t1", "t2"):
        assert guard.topic_refusal("READ", name) is None
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "u1")))
    await asyncio.wait([task], timeout=0.01)
    assert not task.done()
    assert guard.topic_refusal("READ", "t3") is None
    assert guard._asked is None
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "v")))
    assert isinstance(await end_of(task), BrokerNotAvailableError)


async def test_of_a_long_name_the_beginning_is_kept(setup: Setup) -> None:
    """A name may be as long as a request, and 50,000 decisions are remembered. Entries apply to it all the same."""
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "t", pattern_type=PatternType.PREFIXED)))
    await open_stream(setup, info(method=FETCH))
    guard = setup.stream_guard()
    assert guard.topic_refusal("READ", "t" + "x" * (1 << 20)) is None
    refusal = guard.topic_refusal("READ", "u" + "x" * (1 << 20))
    assert refusal is not None
    assert len(refusal.message) < 1_000
    assert guard._asked is not None
    names = [*(key[2] or "" for key in guard._asked), *(key[4] for key in setup.authorizer._remembered)]
    assert {name[0] for name in names} == {"t", "u"}
    assert max(len(name) for name in names) <= NAME_LENGTH_MAX


def test_entries_have_shorter_names_than_are_compared() -> None:
    assert acl_module.NAME_LENGTH_MAX < NAME_LENGTH_MAX


async def test_a_stream_that_shows_what_may_be_seen_ends_with_a_new_right(setup: Setup) -> None:
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "t")))
    task = await open_stream(setup, info(method="/streamlog.v1.Batches/WatchMetadata"))
    assert setup.stream_guard().topic_refusal("DESCRIBE", "u") is not None
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "u")))
    assert isinstance(await end_of(task), TopicAuthorizationError)


CONSUME, MEMBERSHIP = "/streamlog.v1.Records/Consume", "/streamlog.v1.Groups/GroupMembership"
BY_PATTERN = {
    CONSUME: records_pb2.ConsumeRequest(join=records_pb2.ConsumeJoin(group="g", pattern=".*")),
    MEMBERSHIP: groups_pb2.GroupMembershipRequest(
        heartbeat=groups_pb2.GroupHeartbeatRequest(group="g", subscription=groups_pb2.GroupSubscription(pattern=".*"))
    ),
}


@pytest.mark.parametrize("method", [CONSUME, MEMBERSHIP])
@pytest.mark.parametrize(
    "change",
    [
        RemoveAclRecord(acl=acl(AclOperation.READ, "*")),
        AclRecord(acl=acl(AclOperation.ALL, "secret", permission=AclPermission.DENY)),
    ],
    ids=repr,
)
async def test_a_stream_by_pattern_ends_with_the_right_on_all_topics(
    setup: Setup, method: str, change: MetadataRecord
) -> None:
    of_group = acl(AclOperation.READ, "g", AclResourceType.GROUP)
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "*")), AclRecord(acl=of_group))
    task = await open_stream(setup, info(method=method), lambda guard: guard.admit(BY_PATTERN[method]))
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "u")))
    await asyncio.wait([task], timeout=0.01)
    assert not task.done(), "other changes do not end it"
    setup.apply(change)
    error = await end_of(task)
    assert isinstance(error, TopicAuthorizationError)
    assert error.details["field"] == "pattern"


@pytest.mark.parametrize(
    ("change", "default", "looks"),
    [
        (acl(AclOperation.READ, "u"), False, True),
        (acl(AclOperation.READ, "u", host="10.0.0.1"), False, True),
        (acl(AclOperation.READ, "u", host="10.0.0.2"), False, False),
        (replace(acl(AclOperation.READ, "u"), principal="User:bob"), False, False),
        (replace(acl(AclOperation.READ, "u"), principal="User:bob"), True, True),  # alice may no longer by default
        (replace(acl(AclOperation.READ, "u"), principal="User:*"), False, True),
    ],
    ids=repr,
)
async def test_only_streams_that_a_change_may_concern_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, change: Acl, *, default: bool, looks: bool
) -> None:
    setup = Setup(monkeypatch, default=default)
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "t")))
    task = await open_stream(setup, info(method=FETCH))
    setup.apply(AclRecord(acl=change))
    assert bool(setup.gate._unchecked) is looks
    await asyncio.wait([task], timeout=0.01)
    assert not task.done()
    assert not setup.gate._unchecked
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    ("names", "looks"), [(2, ["stream", "other", "stream", "stream"]), (1_000, ["stream"] * 3 + ["other"])]
)
async def test_other_work_goes_on_between_streams_that_have_used_many_names(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, names: int, looks: list[str]
) -> None:
    """Streams with few end in one turn: a right that is withdrawn from thousands does not hold on for some of them."""
    monkeypatch.setattr(gate_module, "CHECKED_AT_ONCE", names)
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "t")))
    tasks = [await open_stream(setup, info(method=FETCH)) for _ in range(3)]
    seen: list[str] = []
    changed = Guard.changed

    def look(guard: Guard) -> StreamlogError | None:
        seen.append("stream")
        return changed(guard)

    monkeypatch.setattr(Guard, "changed", look)
    setup.apply(RemoveAclRecord(acl=acl(AclOperation.READ, "t")))
    asyncio.get_running_loop().call_soon(seen.append, "other")
    for task in tasks:
        assert isinstance(await end_of(task), TopicAuthorizationError)
    assert seen == looks


async def test_an_error_in_the_look_at_one_stream_ends_it_and_saves_no_other(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "t")))
    broken, other = [await open_stream(setup, info(method=FETCH)) for _ in range(2)]
    failures: list[BaseException | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what.get("exception")))
    changed = Guard.changed

    def look(guard: Guard) -> StreamlogError | None:
        if not failures:
            raise KeyError("a defect")
        return changed(guard)

    monkeypatch.setattr(Guard, "changed", look)
    setup.apply(RemoveAclRecord(acl=acl(AclOperation.READ, "t")))
    assert isinstance(await end_of(other), TopicAuthorizationError)
    assert [type(one) for one in failures] == [KeyError]
    assert isinstance(await end_of(broken), ClusterAuthorizationError)


async def test_what_a_stream_asks_before_it_is_looked_at_does_not_save_it(setup: Setup) -> None:
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "t")))
    task = await open_stream(setup, info(method="/streamlog.v1.Batches/WatchMetadata"))
    assert setup.stream_guard().topic_refusal("DESCRIBE", "t") is None
    setup.apply(RemoveAclRecord(acl=acl(AclOperation.READ, "t")))
    for operation in ("READ", "DESCRIBE"):
        assert setup.stream_guard().topic_refusal(operation, "t") is not None
    assert isinstance(await end_of(task), TopicAuthorizationError)


async def test_a_stream_that_its_client_cancels_is_forgotten(setup: Setup) -> None:
    setup.apply(AclRecord(acl=acl(AclOperation.READ, "t")))
    task = await open_stream(setup, info(method=FETCH))
    assert setup.gate.open_streams == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert setup.gate.open_streams == 0


def test_a_decision_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch)
    setup.apply(*(AclRecord(acl=acl(AclOperation.READ, f"t{number}")) for number in range(1_000)))
    asked = ("User:alice", "h", AclOperation.READ, AclResourceType.TOPIC, "t999")
    assert setup.authorizer.may(*asked)
    monkeypatch.setattr(setup.authorizer, "_rules", None)
    assert setup.authorizer.may(*asked), "without the rules"


async def test_a_node_without_contact_to_the_controller_grants_nothing(setup: Setup) -> None:
    """Not by its lists and users: nodes and super users by certificate need neither."""
    setup.apply(
        UserRecord(name="alice", password=ALICE),
        AclRecord(acl=acl(AclOperation.READ, "t")),
        AclRecord(acl=acl(AclOperation.READ, "g", AclResourceType.GROUP)),
    )
    stream = await open_stream(setup, info("alice", password="right", method=FETCH))
    await setup.call(info(), heartbeat)
    setup.lease_s = 0.0
    assert "lease" in setup.gate._lease_timer
    setup.gate._lease_timer._due("lease")
    with pytest.raises(RpcError) as caught:
        await asyncio.wait_for(stream, 5)
    assert caught.value.status is Status.UNAVAILABLE
    for call in (info(), info("alice", password="right")):
        refused = await setup.refusal(call, heartbeat)
        assert isinstance(refused, BrokerNotAvailableError)
        assert "does not know which rights were revoked meanwhile" in refused.message
    await setup.call(replace(info("CN=x"), names=(node_uri(3),)))
    await setup.call(info(method="/streamlog.v1.Cluster/Describe"))
    setup.lease_s = 3_600.0
    await setup.call(info(), heartbeat)
