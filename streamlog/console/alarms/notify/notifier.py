"""Delivers notices: a bounded queue for each channel, in order, with retries.

A channel that fails delays its own notices alone. Each is tried TRIES_MAX times, with pauses that double from FIRST_S
to PAUSE_MAX_S, about nine minutes in all; then it is given up, and recorded as failed. Above QUEUE_MAX the oldest that
waits is given up. The queue is stored by `AlarmStore`, so that a restart continues it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec

from streamlog.console.alarms.channels import Channel
from streamlog.console.alarms.deliveries import DeliveryStatus, NoticeDelivery
from streamlog.console.alarms.messages import Notice
from streamlog.console.alarms.notify.senders import DeliveryError, send

TRIES_MAX: Final = 10
FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 300.0
QUEUE_MAX: Final = 200

_log = logging.getLogger(__name__)


class Notifier:
    """One event loop. `record` keeps what became of a delivery; it does not raise."""

    def __init__(
        self,
        channels: Callable[[], Mapping[str, Channel]],
        record: Callable[[NoticeDelivery], Awaitable[None]],
        *,
        sending: Callable[[Channel, Notice], Awaitable[None]] = send,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._channels = channels
        self._record = record
        self._sending = sending
        self._pause = pause
        self._queues: dict[str, deque[NoticeDelivery]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}

    @property
    def queued(self) -> int:
        return sum(map(len, self._queues.values()))

    async def put(self, deliveries: Iterable[NoticeDelivery]) -> None:
        for one in deliveries:
            queue = self._queues.setdefault(one.channel, deque())
            queue.append(one)
            if len(queue) > QUEUE_MAX:
                dropped = queue[1]  # the first one may be under way
                del queue[1]
                await self._end(dropped, DeliveryStatus.FAILED, f"more than {QUEUE_MAX} notices wait for this channel")
            if one.channel not in self._workers:
                self._workers[one.channel] = asyncio.create_task(self._work(one.channel))

    async def wait_until_empty(self) -> None:
        while self._workers:
            await asyncio.gather(*self._workers.values())

    async def close(self) -> None:
        workers = list(self._workers.values())
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self, channel: str) -> None:
        """Ends when the queue is empty."""
        queue = self._queues[channel]
        try:
            while queue:
                tried = msgspec.structs.replace(queue[0], tries=queue[0].tries + 1)
                failure = await self._try(tried)
                if failure is None:
                    queue.popleft()
                    await self._end(tried, DeliveryStatus.DELIVERED, "")
                elif failure.permanent or tried.tries >= TRIES_MAX:
                    queue.popleft()
                    await self._end(tried, DeliveryStatus.FAILED, str(failure))
                else:
                    queue[0] = msgspec.structs.replace(tried, failure=str(failure))
                    await self._record(queue[0])
                    await self._pause(min(PAUSE_MAX_S, FIRST_S * 2 ** (tried.tries - 1)))
        finally:
            self._workers.pop(channel, None)
            if not queue:
                self._queues.pop(channel, None)

    async def _try(self, delivery: NoticeDelivery) -> DeliveryError | None:
        channel = self._channels().get(delivery.channel)
        if channel is None:
            return DeliveryError(f"there is no channel {delivery.channel} any more", permanent=True)
        try:
            await self._sending(channel, delivery.notice)
        except DeliveryError as error:
            return error
        except Exception as error:  # noqa: BLE001  a defect of a library must not stop the channel
            return DeliveryError(f"the channel failed: {type(error).__name__}")
        return None

    async def _end(self, delivery: NoticeDelivery, status: DeliveryStatus, failure: str) -> None:
        if status is DeliveryStatus.FAILED:
            _log.warning(
                "notice %r was not delivered to channel %s after %d tries: %s",
                delivery.notice.title,
                delivery.channel,
                delivery.tries,
                failure,
            )
        await self._record(msgspec.structs.replace(delivery, status=status, failure=failure, ended_at_s=time.time()))
