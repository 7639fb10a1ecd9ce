"""Bearer tokens at the gate: the issuer's keys, what is remembered, streams that outlive their token or do not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from streamlog.access.principals import PrincipalMapping
from streamlog.access.tokens import TokenRules
from streamlog.api.errors import from_rpc
from streamlog.errors import BrokerNotAvailableError, SaslAuthenticationError, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.ports import AuditEvent, CallInfo, RpcError, Stream
from streamlog.ports.probe import no_probe
from streamlog.ports.system import ThreadWorkers
from streamlog.services.access.authenticator import Authenticator
from streamlog.services.access.authorizer import Authorizer
from streamlog.services.access.gate import MethodGate, TokenAccess
from streamlog.services.access.token_keys import UNKNOWN_EVERY_S, KeyTimes, TokenKeys
from streamlog.services.access.token_logins import TokenLogins
from streamlog.services.access.token_sessions import TokenSessions
from streamlog.services.audit.audited_methods import AuditKind
from streamlog.services.audit.trail import AuditTrail
from tests.support.leases import held_lease
from tests.support.tokens import AUDIENCE, ISSUER, TokenIssuer, key_set

URL = "https://issuer.example/keys"
DESCRIBE, FETCH = "/streamlog.v1.Cluster/Describe", "/streamlog.v1.Batches/FetchStream"
T0_MS = 1_800_000_000_000
PEER = "10.0.0.1:4"
ISSUER_ONE, ISSUER_TWO = TokenIssuer(key_id="one"), TokenIssuer(key_id="two")


class SteppedClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return T0_MS + int(self.now_s * 1000)


class Keys:
    """Documents: what the issuer publishes."""

    def __init__(self) -> None:
        self.published: bytes | OSError = key_set(ISSUER_ONE)
        self.reads = 0

    def read(self, url: str, bytes_max: int) -> bytes:
        assert url == URL
        self.reads += 1
        if isinstance(self.published, OSError):
            raise self.published
        return self.published


class Setup:
    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.documents = Keys()
        self.workers = ThreadWorkers()
        view = MetadataView()
        authorizer = Authorizer(view, enabled=True, super_users=["User:alice"])
        passwords = Authenticator(view, self.clock, random.Random(1), self.workers)
        self.keys = TokenKeys(URL, self.documents, self.clock, self.workers, no_probe, KeyTimes(refresh_s=600))
        rules = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), clock_skew_ms=0)
        self.logins = TokenLogins(self.keys, rules, self.clock, random.Random(2))
        self.sessions = TokenSessions(self.logins, self.clock)
        self.gate = MethodGate(
            view, authorizer, passwords, PrincipalMapping(), held_lease(view), TokenAccess(self.logins, self.sessions)
        )

    def token(self, user: str = "alice", *, until_s: float = 3_600, issuer: TokenIssuer = ISSUER_ONE) -> str:
        return issuer.token(user, exp=T0_MS / 1000 + until_s)

    async def call(self, token: str, peer: str = PEER) -> None:
        async def handler(request: bytes, info: CallInfo) -> bytes:
            return b""

        await self.gate.unary(DESCRIBE, handler)(b"", call_info(DESCRIBE, token, peer))

    async def refusal(self, token: str) -> StreamlogError:
        with pytest.raises(RpcError) as caught:
            await self.call(token)
        found = from_rpc(caught.value)
        assert isinstance(found, StreamlogError)
        return found

    async def open_stream(self, token: str, peer: str = PEER) -> asyncio.Task[None]:
        began = asyncio.Event()

        async def handler(stream: Stream, info: CallInfo) -> None:
            began.set()
            await asyncio.Event().wait()

        serve: Callable[..., object] = self.gate.stream(FETCH, handler)
        task = asyncio.ensure_future(serve(None, call_info(FETCH, token, peer)))  # type: ignore[call-overload]
        waiting = asyncio.ensure_future(began.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        assert isinstance(task, asyncio.Task)
        return task


def call_info(method: str, token: str, peer: str) -> CallInfo:
    return CallInfo(method=method, peer=peer, identity="CN=apps", metadata={"authorization": f"Bearer {token}"})


@pytest.fixture
def setup() -> Setup:
    return Setup()


async def test_a_token_is_verified_once(setup: Setup) -> None:
    token = setup.token()
    await asyncio.gather(*(setup.call(token) for _ in range(5)))
    first = setup.logins.accepted
    await setup.call(token, peer="10.0.0.9:1")
    assert (setup.documents.reads, setup.logins.accepted) == (1, first)
    setup.clock.now_s = 3_600
    assert "has expired" in (await setup.refusal(token)).message


async def test_a_token_of_others_is_refused(setup: Setup) -> None:
    for token in ("", "x.y.z", ISSUER_ONE.token(aud="billing", exp=T0_MS), setup.token(issuer=ISSUER_TWO)):
        assert isinstance(await setup.refusal(token), SaslAuthenticationError)
    assert setup.logins.refused == 4


async def test_a_node_without_an_issuer(setup: Setup) -> None:
    setup.gate._tokens = None
    assert "accepts no bearer tokens" in (await setup.refusal(setup.token())).message


async def test_a_new_key_is_found_and_an_old_one_ends(setup: Setup) -> None:
    await setup.call(setup.token())
    setup.documents.published = key_set(ISSUER_ONE, ISSUER_TWO)
    setup.clock.now_s += UNKNOWN_EVERY_S
    await setup.call(setup.token(issuer=ISSUER_TWO))
    assert setup.documents.reads == 2
    setup.documents.published = key_set(ISSUER_TWO)
    stream = await setup.open_stream(setup.token())
    setup.clock.now_s += 600
    await setup.call(setup.token(issuer=ISSUER_TWO))  # has them refreshed in the background
    with pytest.raises(RpcError, match="is no longer the issuer's"):
        await stream
    assert isinstance(await setup.refusal(setup.token()), SaslAuthenticationError)
    await setup.call(setup.token(issuer=ISSUER_TWO))


async def test_unknown_keys_do_not_flood_the_issuer(setup: Setup) -> None:
    for _ in range(20):
        await setup.refusal(setup.token(issuer=ISSUER_TWO))
    assert setup.documents.reads == 1


async def test_an_issuer_that_does_not_answer(setup: Setup) -> None:
    setup.documents.published = OSError(5, "it cannot be reached")
    refused = await setup.refusal(setup.token())
    assert isinstance(refused, BrokerNotAvailableError)
    assert f"{URL}: it cannot be reached" in refused.message
    assert setup.logins.refused == 0
    assert setup.documents.reads == 1
    await setup.refusal(setup.token())
    assert setup.documents.reads == 1, "not before the pause"
    setup.documents.published = key_set(ISSUER_ONE)
    setup.clock.now_s += 1
    await setup.call(setup.token())
    setup.documents.published = b"no keys"
    setup.clock.now_s += 700
    await setup.keys.newer()
    assert setup.documents.reads == 3
    await setup.call(setup.token())  # by the earlier keys


async def test_a_token_that_could_not_be_checked_was_not_allowed(setup: Setup) -> None:
    class Sink:
        def __init__(self) -> None:
            self.events: list[AuditEvent] = []
            self.written = self.dropped = 0

        def write(self, event: AuditEvent) -> None:
            self.events.append(event)

    sink = Sink()
    kinds = (AuditKind.CHANGES, AuditKind.REFUSALS)
    trail = AuditTrail(BrokerId(1), MetadataView(), setup.clock, PrincipalMapping(), kinds, [sink])
    setup.documents.published = OSError(5, "it cannot be reached")

    async def handler(request: bytes, info: CallInfo) -> bytes:
        raise AssertionError

    method = "/streamlog.v1.Admin/DeleteTopics"
    with pytest.raises(RpcError):
        await trail.unary(method, setup.gate.unary(method, handler))(b"", call_info(method, setup.token(), PEER))
    assert [(event.result, event.error) for event in sink.events] == [("refused", "BROKER_NOT_AVAILABLE")]


async def test_a_stream_ends_with_its_token(setup: Setup) -> None:
    stream = await setup.open_stream(setup.token(until_s=100))
    setup.clock.now_s = 100
    setup.sessions._look_at_all()
    with pytest.raises(RpcError) as caught:
        await stream
    error = from_rpc(caught.value)
    assert isinstance(error, SaslAuthenticationError)
    assert "has expired: log in with a new one" in error.message
    assert (len(setup.sessions), setup.gate.open_streams) == (0, 0)


async def test_its_timer_ends_it(setup: Setup) -> None:
    setup.clock.now_s = 99.999
    stream = await setup.open_stream(setup.token(until_s=100))
    setup.clock.now_s = 100
    with pytest.raises(RpcError, match="has expired"):
        await stream


async def test_a_newer_token_on_its_connection_prolongs_it(setup: Setup) -> None:
    stream, other = [await setup.open_stream(setup.token(until_s=100), peer) for peer in (PEER, "10.0.0.1:5")]
    await setup.call(setup.token(until_s=200))
    await setup.call(setup.token("bob", until_s=300))
    await setup.call(setup.token(until_s=150))
    setup.clock.now_s = 199
    setup.sessions._look_at_all()
    with pytest.raises(RpcError):
        await other
    assert not stream.done()
    setup.clock.now_s = 200
    setup.sessions._look_at_all()
    with pytest.raises(RpcError):
        await stream


async def test_a_stream_that_ends_itself_leaves_nothing(setup: Setup) -> None:
    stream = await setup.open_stream(setup.token())
    assert (len(setup.sessions), len(setup.sessions._timers)) == (1, 1)
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert (len(setup.sessions), len(setup.sessions._timers)) == (0, 0)
