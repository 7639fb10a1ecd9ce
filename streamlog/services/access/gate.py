"""Around every method of a node with an authorizer: who calls, what it may do, and until when.

    certificate of a node                --> everything (methods between nodes: `streamlog.tls.callers`)
    `authorization` metadata             --> User:NAME of the password (`authenticator`) or token (`token_logins`)
    certificate of a client              --> the principal of its distinguished name
    super user                           --> everything, while it exists
    others                               --> the call gets a guard (`guard`), by the method's row (`method_rights`)

A stream is registered while it is open. When the access control lists or the users change, those that the change may
concern are looked at again, one after the other: one whose user was deleted or has another password, or that lost a
right which it has used, ends with the error that a new call would get. So does one whose token has expired
(`token_sessions`), and each one that depends on the lists when the node no longer knows whether they are in force
(`access_lease`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.access.acl import AclResourceType
from streamlog.access.passwords import SaltedPassword
from streamlog.access.principals import ANONYMOUS, PrincipalMapping
from streamlog.aio.keyed_timers import KeyedTimers
from streamlog.api.errors import to_rpc
from streamlog.errors import ClusterAuthorizationError, SaslAuthenticationError, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.ports import CallInfo, RpcError, Stream, StreamHandler, UnaryHandler
from streamlog.ports.tracing import PRINCIPAL
from streamlog.services.access.access_lease import AccessLease
from streamlog.services.access.authenticator import HEADER, Authenticator
from streamlog.services.access.authorizer import AclCallers, Authorizer
from streamlog.services.access.guard import Guard
from streamlog.services.access.method_rights import METHOD_RIGHTS, NOTHING, MethodRight
from streamlog.tls.identity import node_of

if TYPE_CHECKING:  # imported where tokens are used: `cryptography` takes long
    from streamlog.access.tokens import AcceptedToken
    from streamlog.services.access.token_logins import TokenLogins
    from streamlog.services.access.token_sessions import TokenSessions

BEARER: Final = "bearer "
CHECKED_AT_ONCE: Final = 2_000
"""Names that streams have used, looked at in one turn of the loop after a change: 15 ms."""
_LEASE: Final = "lease"


class _Caller(Struct, frozen=True):
    principal: str
    user: str | None = None  # logged in with a password
    password: SaltedPassword | None = None  # of the user, when the call began
    token: AcceptedToken | None = None
    may_all: bool = False


class _OpenStream:
    __slots__ = ("caller", "guard", "leased", "reason", "task")

    def __init__(self, caller: _Caller, guard: Guard | None, *, leased: bool) -> None:
        self.caller = caller
        self.guard = guard
        self.leased = leased  # depends on the lists or the users
        self.reason: StreamlogError | None = None  # why it was ended
        self.task = asyncio.current_task()

    def end(self, reason: StreamlogError) -> None:
        if self.reason is None and self.task is not None:
            self.reason = reason
            self.task.cancel()


class TokenAccess(Struct, frozen=True):
    logins: TokenLogins
    sessions: TokenSessions


class MethodGate:
    def __init__(
        self,
        view: MetadataView,
        authorizer: Authorizer,
        authenticator: Authenticator,
        mapping: PrincipalMapping,
        lease: AccessLease,
        tokens: TokenAccess | None = None,
    ) -> None:
        """`mapping`: of certificates. `tokens`: None: there is no issuer of tokens."""
        self._view = view
        self._authorizer = authorizer
        self._authenticator = authenticator
        self._mapping = mapping
        self._lease = lease
        self._tokens = tokens
        self._open: dict[_OpenStream, None] = {}
        self._unchecked: dict[_OpenStream, Guard] = {}  # since a change of the lists that concerns them
        self._lease_timer: KeyedTimers[str] = KeyedTimers(lambda _: self._look_at_lease())
        authorizer.on_change(self._on_change)

    @property
    def open_streams(self) -> int:
        return len(self._open)

    @property
    def logins(self) -> Authenticator:
        return self._authenticator

    @property
    def tokens(self) -> TokenLogins | None:
        return None if self._tokens is None else self._tokens.logins

    def unary(self, method: str, handler: UnaryHandler) -> UnaryHandler:
        row = METHOD_RIGHTS.get(method)

        async def handle(request: bytes, info: CallInfo) -> bytes:
            caller = await self._caller(info)
            _name(info, caller.principal)
            guard = self._guard(caller, info, row, remembers=False)
            if info.audit is not None:
                info.audit.guard = guard
            return await handler(request, replace(info, principal=caller.principal, guard=guard))

        return handle

    def stream(self, method: str, handler: StreamHandler) -> StreamHandler:
        row = METHOD_RIGHTS.get(method)

        async def handle(stream: Stream, info: CallInfo) -> None:
            caller = await self._caller(info)
            _name(info, caller.principal)
            guard = self._guard(caller, info, row, remembers=True)
            if info.audit is not None:
                info.audit.guard = guard
            info = replace(info, principal=caller.principal, guard=guard)
            if guard is None and caller.user is None and caller.token is None:
                await handler(stream, info)
                return
            own = _OpenStream(caller, guard, leased=_is_leased(caller, row))
            self._open[own] = None
            if _LEASE not in self._lease_timer:
                self._look_at_lease()
            close = self._open_session(own, info)
            try:
                await handler(stream, info)
            except asyncio.CancelledError:
                if own.reason is None:
                    raise
                if own.task is not None:
                    own.task.uncancel()
                raise to_rpc(own.reason) from None
            finally:
                del self._open[own]
                self._unchecked.pop(own, None)
                if close is not None:
                    close()

        return handle

    async def _caller(self, info: CallInfo) -> _Caller:
        """RpcError."""
        if info.identity is not None and node_of(info.names) is not None:
            return _Caller(f"Node:{node_of(info.names)}", may_all=True)
        header = info.metadata.get(HEADER)
        if header is None:
            principal = ANONYMOUS if not info.identity else self._mapping.principal(info.identity, info.listener)
            return _Caller(principal, may_all=self._authorizer.is_super(principal))
        if header[: len(BEARER)].lower() == BEARER:
            return await self._token_caller(header, info)
        user = self._authenticator.known(header)
        if user is None:
            try:
                await self._authenticator.login(header, _host(info.peer))
            except StreamlogError as error:
                raise _login_refused(info, error) from None
            user = self._authenticator.known(header)
            if user is None:
                changed = "the user was deleted or its password changed while it was checked: log in again"
                raise _login_refused(info, SaslAuthenticationError(changed))
        principal = f"User:{user}"
        password = self._authenticator.password_of(user)
        return _Caller(principal, user, password, may_all=self._authorizer.is_super(principal))

    async def _token_caller(self, header: str, info: CallInfo) -> _Caller:
        """RpcError."""
        if self._tokens is None:
            raise to_rpc(
                SaslAuthenticationError("this node accepts no bearer tokens (sasl.oauthbearer.jwks.endpoint.url)")
            )
        token = self._tokens.logins.known(header)
        if token is None:
            try:
                token = await self._tokens.logins.login(header)
            except StreamlogError as error:
                raise _login_refused(info, error) from None
        self._tokens.sessions.renew(info.peer, token)
        principal = f"User:{token.user}"
        return _Caller(principal, token=token, may_all=self._authorizer.is_super(principal))

    def _open_session(self, own: _OpenStream, info: CallInfo) -> Callable[[], None] | None:
        """What is to be called at the stream's end; None for a caller without a token."""
        token = own.caller.token
        if token is None or self._tokens is None:
            return None
        return self._tokens.sessions.open(info.peer, token, own)

    def _guard(self, caller: _Caller, info: CallInfo, row: MethodRight | None, *, remembers: bool) -> Guard | None:
        """None: everything is allowed. RpcError for a method without a row, and where the lease has ended."""
        if _is_leased(caller, row):
            refusal = self._lease.refusal()
            if refusal is not None:
                raise to_rpc(refusal)
        if caller.may_all:
            return None
        if row is None:
            self._authorizer.refused[AclResourceType.CLUSTER] += 1
            raise to_rpc(ClusterAuthorizationError(f"{caller.principal} may not call {info.method.lstrip('/')}"))
        return Guard(
            self._authorizer,
            self._view,
            caller.principal,
            _host(info.peer),
            row,
            remembers=remembers,
            audit=info.audit,
        )

    def _look_at_lease(self) -> None:
        """End the streams once the lease has ended; look again when it would, while there are any."""
        refusal = self._lease.refusal()
        if refusal is not None:
            for one in list(self._open):
                if one.leased:
                    one.end(refusal)
        elif self._open:
            self._lease_timer.set(_LEASE, max(1, round(self._lease.left_s() * 1000)))

    def _on_change(self, callers: AclCallers | None) -> None:
        was_idle = not self._unchecked
        for one in list(self._open):
            caller = one.caller
            if caller.user is not None and self._authenticator.password_of(caller.user) != caller.password:
                one.end(
                    SaslAuthenticationError(f"user {caller.user} was deleted or its password changed: log in again")
                )
            elif one.guard is not None and one.guard.is_concerned(callers):
                self._unchecked[one] = one.guard
        if self._unchecked and was_idle:
            asyncio.get_running_loop().call_soon(self._check_next)

    def _check_next(self) -> None:
        """Some of the streams, each of which may have used thousands of names; then what else waits in the loop."""
        names = 0
        try:
            while self._unchecked and names < CHECKED_AT_ONCE:
                one, guard = next(iter(self._unchecked.items()))
                del self._unchecked[one]
                names += 1 + guard.remembered
                try:
                    reason = guard.changed()
                except Exception:  # what is not known to be allowed ends
                    one.end(ClusterAuthorizationError("the node could not check this call's rights again"))
                    raise
                if reason is not None:
                    one.end(reason)
        finally:  # an error for one stream must not leave the others, and all later changes, unchecked
            if self._unchecked:
                asyncio.get_running_loop().call_soon(self._check_next)


def _is_leased(caller: _Caller, row: MethodRight | None) -> bool:
    """Whether the lists or the users decide about the call."""
    return row is not NOTHING and not (caller.may_all and caller.user is None)


def _login_refused(info: CallInfo, error: StreamlogError) -> RpcError:
    if info.audit is not None:
        info.audit.login_refused = True
    return to_rpc(error)


def _name(info: CallInfo, principal: str) -> None:
    """To the call's span and its audit."""
    if info.span is not None:
        info.span.set(PRINCIPAL, principal)
    if info.audit is not None:
        info.audit.principal = principal


def _host(peer: str) -> str:
    """The address of `host:port`, `[ipv6]:port`."""
    return peer.rpartition(":")[0].strip("[]")
