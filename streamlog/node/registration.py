"""A node's standing in the cluster: it registers, heartbeats, is unfenced, and shuts down (SEMANTICS 8).

    unregistered --register--> fenced --serving, caught up--> unfenced --shut_down--> leaving --leads nothing--> left
         ^                        |                              |
         +---- the controller knows another registration, or none ----+

Owned by the node; its state is in memory only. The broker epoch of a clean stop is part of the clean-stop mark in the
log directories, and is passed in at the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from streamlog.aio.timeouts import timeout
from streamlog.config import Config
from streamlog.config.settings import node_settings as settings
from streamlog.controller import ControllerLink
from streamlog.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerIdError,
    QuorumUnavailableError,
    StaleBrokerEpochError,
    StreamlogError,
)
from streamlog.metadata.brokers.liveness import BrokerHeartbeat, HeartbeatResponse
from streamlog.metadata.brokers.registration import RegisterBroker
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.records import EPOCH_FROM_INDEX
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch
from streamlog.node.quorum_clock import QuorumClock
from streamlog.ports import Probe, Random, RpcError
from streamlog.services.access.access_lease import AccessLease

REGISTER_TIMEOUT_S: Final = 2.0
"""Of one call, which is retried."""
REGISTER_RETRY_S: Final = 0.25
"""Pause before another attempt: the longest."""
FAST_HEARTBEAT_S: Final = 0.1
"""Heartbeat interval of a node that waits to be unfenced, or to leave, or whose last heartbeat was not answered."""


class BrokerRegistration:
    """`register`, then `run` beside it for the node's life, `shut_down` at its end."""

    def __init__(
        self,
        request: RegisterBroker,
        *,
        link: ControllerLink,
        view: MetadataView,
        config: Callable[[], Config],
        clock: QuorumClock,
        random: Random,
        probe: Probe,
        lease: AccessLease,
    ) -> None:
        self._request = request  # of the next registration
        self._link = link
        self._view = view
        self._config = config
        self._clock = clock
        self._random = random
        self._probe = probe
        self._lease = lease
        self._epoch: BrokerEpoch | None = None
        self._serving = False  # the node can serve
        self._unfenced = False  # as the controller answered last
        self._leaving = False
        self._left = asyncio.Event()
        self._unanswered_since: float | None = None  # no controller has answered since then
        self._wake = asyncio.Event()  # heartbeat now

    @property
    def broker_epoch(self) -> BrokerEpoch | None:
        """Of the current registration; None before the first."""
        return self._epoch

    @property
    def unfenced(self) -> bool:
        return self._unfenced

    async def register(self) -> BrokerEpoch:
        """Retries until `initial.broker.registration.timeout.ms` has passed; a node that was registered before does so
        without end, since it serves again as soon as there is a controller.

        A refusal at once: InconsistentClusterError, UnsupportedVersionError, InvalidRequestError. At the end of that
        time: DuplicateBrokerIdError (of every registration), QuorumUnavailableError.
        """
        config = self._config()
        deadline = self._clock.monotonic() + config[settings.INITIAL_BROKER_REGISTRATION_TIMEOUT_MS] / 1000
        while True:
            try:
                done = await self._link.register(self._request, timeout_s=REGISTER_TIMEOUT_S)
            except (StreamlogError, RpcError) as error:
                failure = _retriable(error)
                bounded = self._epoch is None or isinstance(failure, DuplicateBrokerIdError)
                if bounded and self._clock.monotonic() >= deadline:
                    raise failure from None
                if self._leaving:  # not registered, so it leads nothing
                    self._left.set()
                self._probe("registration_waits", broker=self._request.broker_id, reason=str(failure))
                await asyncio.sleep(self._random.uniform(0.5, 1.0) * REGISTER_RETRY_S)
                continue
            self._epoch = self._link.broker_epoch = done.broker_epoch
            self._unfenced = False
            # A registration after this one would not follow a clean stop.
            self._request = replace(self._request, previous_broker_epoch=EPOCH_FROM_INDEX)
            self._probe("registered", broker=self._request.broker_id, epoch=done.broker_epoch)
            return done.broker_epoch

    async def run(self) -> None:
        """Sends heartbeats, for ever. Raises what `register` raises."""
        while True:
            self._wake.clear()
            await self._send_heartbeat()
            interval_s = self._config()[settings.BROKER_HEARTBEAT_INTERVAL_MS] / 1000
            unanswered = self._unanswered_since is not None
            waits = self._leaving or unanswered or (self._serving and not self._unfenced)
            try:
                async with timeout(min(interval_s, FAST_HEARTBEAT_S) if waits else interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def serve(self) -> None:
        """The node can serve now: waits until it is unfenced, and its own image shows that."""
        self._serving = True
        self._wake.set()
        await self._view.wait_until(self._shows_unfenced)

    async def shut_down(self, timeout_s: float) -> bool:
        """Controlled shutdown: True once this node leads no partition.

        False after `timeout_s`, or when no controller has answered for `broker.session.timeout.ms`: the node is the
        last one or disconnected, so no other node could take over.
        """
        self._leaving = True
        self._wake.set()
        try:
            async with timeout(timeout_s):
                await self._left.wait()
        except TimeoutError:
            return False
        return not self._is_cut_off()

    async def _send_heartbeat(self) -> None:
        if self._epoch is None:
            return
        config = self._config()
        command = BrokerHeartbeat(
            broker_id=self._request.broker_id,
            broker_epoch=self._epoch,
            applied_index=self._view.image.index,
            want_fence=not self._serving,
            want_shut_down=self._leaving,
            clock=self._clock.report(),
        )
        sent_s = self._clock.monotonic()
        try:
            timeout_s = config[settings.BROKER_SESSION_TIMEOUT_MS] / 3_000
            response = await self._link.heartbeat(command, timeout_s=timeout_s)
        except (BrokerIdNotRegisteredError, StaleBrokerEpochError) as error:
            await self._registration_lost(error)
        except (StreamlogError, RpcError) as error:
            self._heartbeat_unanswered(error, self._clock.monotonic() - sent_s)
        else:
            self._clock.heartbeat_answered(sent_s, response.clock)
            self._lease.answered(sent_s, response.metadata_index)
            self._heartbeat_answered(response)

    async def _registration_lost(self, error: StreamlogError) -> None:
        self._unfenced = False
        self._probe("registration_lost", broker=self._request.broker_id, epoch=self._epoch, reason=str(error))
        if self._leaving:
            self._left.set()
            return
        await self.register()

    def _heartbeat_unanswered(self, error: StreamlogError | RpcError, took_s: float) -> None:
        if self._unanswered_since is None:
            self._unanswered_since = self._clock.monotonic()
            self._probe("heartbeat_unanswered", broker=self._request.broker_id, reason=str(error))
        if self._leaving and self._is_cut_off():
            self._left.set()
        if took_s >= FAST_HEARTBEAT_S:
            self._wake.set()  # the link has waited already

    def _is_cut_off(self) -> bool:
        if self._unanswered_since is None:
            return False
        session_s = self._config()[settings.BROKER_SESSION_TIMEOUT_MS] / 1000
        return self._clock.monotonic() - self._unanswered_since >= session_s

    def _heartbeat_answered(self, response: HeartbeatResponse) -> None:
        self._unanswered_since = None
        unfenced = not response.fenced
        if unfenced != self._unfenced and not self._leaving:
            self._probe("unfenced" if unfenced else "fenced", broker=self._request.broker_id, epoch=self._epoch)
        self._unfenced = unfenced
        if response.should_shut_down:
            self._left.set()

    def _shows_unfenced(self, image: MetadataImage) -> bool:
        broker = image.brokers.get(self._request.broker_id)
        return broker is not None and broker.epoch == self._epoch and not broker.fenced


def _retriable(error: StreamlogError | RpcError) -> StreamlogError:
    """Why to register again. A refusal is raised: no later attempt would end otherwise."""
    if isinstance(error, RpcError):  # the other node's trouble, not a decision on this one
        return QuorumUnavailableError(f"the controller did not register this node: {error}")
    if not error.retriable:
        raise error
    return error
