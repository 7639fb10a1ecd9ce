"""The transactions of one producer (SEMANTICS 7): begin, send, commit or abort, one after another.

    uninitialized --init--> ready --begin--> open --commit--> settling --> ready
                                               |--abort----> ready
                                               |--a record or an offset is refused--> failed --abort--> ready
                                               '--prepare--> settling --> prepared --commit, abort--> ready
    settling: as open, but no more records are accepted; those accepted before are written, which may fail
    commit without a response --> committing --commit again--> ready
    commit that is refused --> failed;  abort that is refused --> fatal: another producer uses the transactional id
    uninitialized --take over from a former instance, by its identity--> ready; its open transaction has ended

The response to each end has the identity of the next transaction, so sequences restart with each transaction, and late
records of the previous one are refused (KIP-890). An empty transaction causes no requests.

Errors of three kinds. TransactionAbortableError: abort, and begin another one. ProducerFencedError, or another error of
an abort: close this producer. RequestTimedOutError of a commit: commit again, which has the same outcome.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from streamlog.api.calls import Message, Response, UnaryCall, unary
from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2, groups_pb2
from streamlog.api.pb import transactions_pb2 as pb
from streamlog.client.connection.addresses import address_of
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import ONE_NODE_TIMEOUT_S
from streamlog.client.consumer.start_positions import as_partition
from streamlog.client.groups.group_offsets import OffsetAndMetadata, to_commit
from streamlog.client.producer.batches.identities import identity_in
from streamlog.client.producer.batches.wire_batch import ProducerIdAndEpoch
from streamlog.client.producer.given_records import mapping, shown
from streamlog.errors import (
    InvalidRequestError,
    InvalidTransactionStateError,
    ProducerFencedError,
    RequestTimedOutError,
    StreamlogError,
    TransactionAbortableError,
)
from streamlog.model import Offset, TopicPartition
from streamlog.ports import Clock

_INIT: Final = unary("streamlog.v1.Batches/InitProducerId", batches_pb2.InitProducerIdResponse)
_END: Final = unary("streamlog.v1.Transactions/EndTransaction", pb.EndTransactionResponse)
_OFFSETS: Final = unary("streamlog.v1.Transactions/CommitTransactionOffsets", pb.CommitTransactionOffsetsResponse)


class TransactionPhase(enum.Enum):
    UNINITIALIZED = "not initialized"
    READY = "ready"
    OPEN = "open"
    SETTLING = "ends when its records are written"
    FAILED = "to be aborted"
    PREPARED = "prepared"
    COMMITTING = "being committed"
    FATAL = "failed permanently"


_UNDECIDED: Final = (TransactionPhase.OPEN, TransactionPhase.SETTLING)


class TransactionRules(Struct, frozen=True, kw_only=True):
    transactional_id: str
    timeout_ms: int
    two_phase: bool
    call_timeout_s: float  # max.block.ms: of a call with its retries
    attempt_s: float  # request.timeout.ms: of one attempt


class PreparedTransaction(Struct, frozen=True):
    """What an external coordinator stores, to complete the transaction after a crash (KIP-939)."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """The reverse of `str`. InvalidRequestError."""
        producer_id, colon, epoch = text.partition(":")
        if not colon or not producer_id.isdecimal() or not epoch.isdecimal():
            raise InvalidRequestError(
                f"{text!r} is not a prepared transaction: give PRODUCER_ID:EPOCH", field="prepared"
            )
        return cls(int(producer_id), int(epoch))


class GroupMetadata(Struct, frozen=True):
    """The group whose offsets a transaction commits, and its member: a member that was removed is fenced."""

    group: str
    member_id: str = ""  # empty: not a member; the group must be empty
    member_epoch: int = 0


class Nodes(Protocol):
    """streamlog.client.connection.connections.Connections."""

    async def ask(self, call: UnaryCall[Response], request: Message, *, address: str, timeout_s: float) -> Response:
        """Call this node. StreamlogError."""
        ...

    async def ask_any(self, call: UnaryCall[Response], request: Message, *, timeout_s: float) -> Response:
        """Call one node after the other until one answers. StreamlogError."""
        ...


class TransactionManager:
    """Owned by the producer. `settle`: wait until all records are acknowledged or have failed. `drop`: fail those that
    are not acknowledged. `on_state`: the state has changed, and with it whether records may be sent.
    """

    def __init__(
        self,
        rules: TransactionRules,
        nodes: Nodes,
        clock: Clock,
        backoff: Backoff,
        *,
        settle: Callable[[], Awaitable[None]],
        drop: Callable[[StreamlogError], None],
        on_state: Callable[[TransactionPhase, ProducerIdAndEpoch], None],
    ) -> None:
        self._rules = rules
        self._nodes = nodes
        self._clock = clock
        self._backoff = backoff
        self._settle = settle
        self._drop = drop
        self._on_state = on_state
        self._state = TransactionPhase.UNINITIALIZED
        self._identity = ProducerIdAndEpoch()
        self._touched = False  # something was, or may have been, sent in the open transaction
        self._prepared: PreparedTransaction | None = None
        self._error: StreamlogError | None = None  # why it failed
        self._coordinator: str | None = None  # address of the one that answered last

    @property
    def state(self) -> TransactionPhase:
        return self._state

    # -- records

    def check_open(self) -> None:
        """Whether records may be sent. InvalidTransactionStateError, TransactionAbortableError, ProducerFencedError."""
        if self._state is not TransactionPhase.OPEN:
            raise self._refusal("records can be sent only in an open transaction: begin one")

    def touch(self) -> None:
        """A batch has been opened."""
        self._touched = True

    def on_failure(self, error: StreamlogError) -> None:
        """A record of the open transaction was not written, so the transaction can only be aborted. Where the reason is
        that the producer is fenced, the abort finds out whether that is permanent.
        """
        if self._state in _UNDECIDED:
            self._error = error
            self._go(TransactionPhase.FAILED)

    # -- commands

    async def init(self) -> None:
        """Get a producer id, fence the former producer of the transactional id, and abort its open transaction; once.
        To be called before the committed offsets of a group are read, which an open transaction may hold up.
        RequestTimedOutError, InvalidRequestError.
        """
        if self._state is TransactionPhase.UNINITIALIZED:
            await self._init(keep_prepared=False)

    async def begin(self) -> None:
        """The first one does `init`. RequestTimedOutError, InvalidTransactionStateError, ProducerFencedError."""
        await self.init()
        if self._state is not TransactionPhase.READY:
            also = "" if self._state is TransactionPhase.COMMITTING else ": commit or abort it"
            raise self._refusal(f"the previous transaction has not ended{also}")
        self._touched = False
        self._go(TransactionPhase.OPEN)

    async def commit(self) -> None:
        """TransactionAbortableError: abort it. RequestTimedOutError: the outcome is unknown, commit again."""
        if self._state in _UNDECIDED:
            self._go(TransactionPhase.SETTLING)
            await self._settle()
        if self._state is TransactionPhase.SETTLING and not self._touched:
            self._go(TransactionPhase.READY)
            return
        if self._state not in (
            TransactionPhase.SETTLING,
            TransactionPhase.PREPARED,
            TransactionPhase.COMMITTING,
        ):
            raise self._refusal("there is no transaction to commit")
        self._go(TransactionPhase.COMMITTING)
        await self._end(commit=True)

    async def abort(self) -> None:
        """Its records are not written, or not returned to read_committed consumers."""
        if self._state is TransactionPhase.READY:
            return
        if self._state not in (
            *_UNDECIDED,
            TransactionPhase.FAILED,
            TransactionPhase.PREPARED,
        ):
            raise self._refusal("there is no transaction that can be aborted")
        if self._state in _UNDECIDED:
            self._go(TransactionPhase.FAILED)
        self._drop(InvalidTransactionStateError("the transaction was aborted"))
        if not self._touched and self._state is not TransactionPhase.PREPARED:
            self._go(TransactionPhase.READY)
            return
        await self._end(commit=False)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | GroupMetadata
    ) -> None:
        """Commit these offsets of the group together with the transaction. TransactionAbortableError: abort it."""
        self.check_open()
        if not offsets:
            return
        rows = [
            to_commit(as_partition(p), at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(Offset(at)))
            for p, at in mapping("offsets", offsets).items()
        ]
        if not isinstance(group, str | GroupMetadata):
            raise InvalidRequestError(f"group must be a str or a GroupMetadata, not {shown(group)}", field="group")
        self._touched = True
        metadata = GroupMetadata(group) if isinstance(group, str) else group
        request = pb.CommitTransactionOffsetsRequest(
            transactional_id=self._rules.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            group=metadata.group,
            offsets=rows,
        )
        if metadata.member_id:
            member = groups_pb2.GroupMember(member_id=metadata.member_id, member_epoch=metadata.member_epoch)
            request.member.CopyFrom(member)
        try:
            await self._commit_offsets(request)
        except StreamlogError as error:
            self.on_failure(error)
            raise self._refusal(f"the offsets of group {metadata.group!r} could not be committed") from error

    async def _commit_offsets(self, request: pb.CommitTransactionOffsetsRequest) -> None:
        """With retries until all are accepted. StreamlogError."""

        def check(response: pb.CommitTransactionOffsetsResponse) -> None:
            for result in response.results:
                if result.HasField("error"):
                    raise from_message(result.error)

        await self._call(_OFFSETS, request, check)

    async def take_over(self, former: ProducerIdAndEpoch) -> bool:
        """Instead of `init`: continue as a former instance of this producer, whose transaction is aborted unless it has
        ended. Returns whether it was committed. ProducerFencedError: another producer has used the transactional id.
        """
        self._identity = former
        try:
            identity = await self._request_end(commit=False)
        except ProducerFencedError:
            identity = await self._request_end(commit=True)  # it was committed, or the producer is fenced
            committed = True
        else:
            committed = False
        self._on_ended(identity)
        return committed

    # -- two-phase commit

    async def prepare(self) -> PreparedTransaction:
        """Wait until all records are written; then only `commit` or `abort` is possible, here or after a crash.
        TransactionAbortableError: abort it.
        """
        if not self._rules.two_phase:
            raise InvalidTransactionStateError(
                "a transaction can be prepared only with transaction.two.phase.commit.enable=true"
            )
        return await self.hand_over()

    async def hand_over(self) -> PreparedTransaction:
        """As `prepare`, but also without two-phase commit. The transaction is ended by the admin client, with what is
        returned (`end_prepared_transaction`), before transaction.timeout.ms.
        """
        if self._state is not TransactionPhase.SETTLING:
            self.check_open()
        self._go(TransactionPhase.SETTLING)
        await self._settle()
        if self._state is not TransactionPhase.SETTLING:
            raise self._refusal("the transaction was ended meanwhile")
        self._prepared = PreparedTransaction(self._identity.producer_id, self._identity.epoch)
        self._go(TransactionPhase.PREPARED if self._touched else TransactionPhase.OPEN)
        return self._prepared

    async def resume(self) -> PreparedTransaction | None:
        """Instead of `init`, after a crash: the prepared transaction, to be committed or aborted; None: none."""
        if self._state is not TransactionPhase.UNINITIALIZED or not self._rules.two_phase:
            raise self._refusal(
                "resume_transaction() must be the first call, and needs transaction.two.phase.commit.enable=true"
            )
        await self._init(keep_prepared=True)
        return self._prepared

    # -- within

    async def _init(self, *, keep_prepared: bool) -> None:
        request = batches_pb2.InitProducerIdRequest(
            transactional_id=self._rules.transactional_id,
            transaction_timeout_ms=self._rules.timeout_ms,
            enable_two_phase_commit=self._rules.two_phase,
            keep_prepared_transaction=keep_prepared,
        )
        response = await self._call(_INIT, request)
        self._identity = identity_in(response)
        if response.HasField("ongoing_producer_id"):
            self._prepared = PreparedTransaction(response.ongoing_producer_id, response.ongoing_producer_epoch)
            self._touched = True
            self._go(TransactionPhase.PREPARED)
        else:
            self._go(TransactionPhase.READY)

    async def _end(self, *, commit: bool) -> None:
        try:
            identity = await self._request_end(commit=commit)
        except RequestTimedOutError:
            raise
        except StreamlogError as error:
            self._error = error
            self._go(TransactionPhase.FAILED if commit else TransactionPhase.FATAL)
            raise self._refusal("the transaction cannot be ended") from error
        self._on_ended(identity)

    async def _request_end(self, *, commit: bool) -> ProducerIdAndEpoch:
        """Returns the identity from now on."""
        request = pb.EndTransactionRequest(
            transactional_id=self._rules.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            commit=commit,
        )
        response = await self._call(_END, request)
        self._coordinator = address_of(response.coordinator) if response.HasField("coordinator") else None
        return identity_in(response)

    def _on_ended(self, identity: ProducerIdAndEpoch) -> None:
        self._identity = identity
        self._prepared = self._error = None
        self._touched = False
        self._go(TransactionPhase.READY)

    async def _call(
        self,
        call: UnaryCall[Response],
        request: Message,
        check: Callable[[Response], None] = lambda _: None,
    ) -> Response:
        """Call the coordinator, where it is known, or any node, which forwards the call; with retries.
        RequestTimedOutError, and errors that are not retriable.
        """
        deadline = self._clock.monotonic() + self._rules.call_timeout_s
        attempt = 0
        while True:
            left_s = deadline - self._clock.monotonic()
            try:
                response = await self._call_once(call, request, max(0.001, min(left_s, self._rules.attempt_s)))
                check(response)
                return response
            except StreamlogError as error:
                if not error.retriable:
                    raise
                left_s = deadline - self._clock.monotonic()
                if left_s <= 0:
                    raise RequestTimedOutError(
                        f"the coordinator of transactional id {self._rules.transactional_id!r} did not answer within"
                        f" {self._rules.call_timeout_s:g} s (max.block.ms): {error}"
                    ) from error
            attempt += 1
            await self._backoff.wait(attempt, left_s=left_s)

    async def _call_once(self, call: UnaryCall[Response], request: Message, timeout_s: float) -> Response:
        coordinator = self._coordinator if call is _END else None
        if coordinator is None:
            return await self._nodes.ask_any(call, request, timeout_s=timeout_s)
        self._coordinator = None  # until it answers: its machine may have failed
        timeout_s = min(timeout_s, ONE_NODE_TIMEOUT_S)
        return await self._nodes.ask(call, request, address=coordinator, timeout_s=timeout_s)

    def _go(self, state: TransactionPhase) -> None:
        self._state = state
        self._on_state(state, self._identity)

    def _refusal(self, what: str) -> StreamlogError:
        error = self._error
        if self._state is TransactionPhase.FATAL and error is not None:
            return error.restored(error.message, error.details)
        if self._state is TransactionPhase.FAILED:
            why = "its abort was not completed" if error is None else f"{error.code}: {error.message}"
            cause = {} if error is None else {"cause_code": error.code, "cause": error.message}
            return TransactionAbortableError(
                f"the transaction can only be aborted; abort it, and begin another one: {why}", **cause
            )
        state = f"the state of the producer's transaction: {self._state.value}"
        if self._state is TransactionPhase.COMMITTING:
            state += "; it may be committed already, so nothing but another commit ends it"
        return InvalidTransactionStateError(f"{what} ({state})")
