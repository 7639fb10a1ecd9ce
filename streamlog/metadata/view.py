"""A node's view of the cluster: the newest image it has applied, and the active controller.

    quorum or observer --commands--> MetadataStateMachine --image, delta--> MetadataView --> listeners, waiters

One view per node. It owns the node's state machine, fed by voter and observer alike. The view may be stale, except at
the active controller, which decides on it.

Listeners are notified on the event loop between two commands, in the order of their registration, and must not block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.state_machine import ImageListener, MetadataStateMachine
from streamlog.model import BrokerId, RaftIndex


class MetadataView:
    def __init__(self) -> None:
        self.machine = MetadataStateMachine(self._changed)  # for the quorum, or the observer
        self._listeners: dict[object, ImageListener] = {}  # in the order of registration
        self._image_changed = asyncio.Event()  # replaced with each image
        self._controller: BrokerId | None = None
        self._controller_address: str | None = None
        self._controller_changed = asyncio.Event()  # replaced with each change

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    def listen(self, listener: ImageListener) -> Callable[[], None]:
        """Notify from the next image on. Call the result to unregister."""
        own = object()  # the same listener may be registered twice
        self._listeners[own] = listener

        def stop() -> None:
            self._listeners.pop(own, None)

        return stop

    async def wait_until_applied(self, index: RaftIndex) -> None:
        """Wait until the command at `index` is applied. Only for indexes of commands: other entries make no image."""
        while self.image.index < index:
            await self._image_changed.wait()

    async def wait_until(self, condition: Callable[[MetadataImage], bool]) -> MetadataImage:
        """The first image from now on that satisfies the condition; it may be the current one."""
        while not condition(self.image):
            await self._image_changed.wait()
        return self.image

    def address_of(self, broker_id: BrokerId) -> str | None:
        """`host:port` of a registered node that is not fenced, for nodes."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        return address(broker.host, broker.port)

    def hinted_address(self, broker_id: BrokerId) -> str | None:
        """The same for an error that any caller may get; None for a node with several listeners: callers of each have
        its address from their own metadata.
        """
        broker = self.image.brokers.get(broker_id)
        return None if broker is None or broker.listeners else self.address_of(broker_id)

    # The active controller.

    @property
    def controller(self) -> BrokerId | None:
        """The active controller; None while none is known."""
        return self._controller

    @property
    def controller_address(self) -> str | None:
        """Its `host:port`."""
        return self._controller_address

    def set_controller(self, controller: BrokerId | None, address: str | None) -> None:
        """Called by the follower of the quorum's leadership; at an observer by the ControllerLink."""
        if (controller, address) != (self._controller, self._controller_address):
            self._controller, self._controller_address = controller, address
            news, self._controller_changed = self._controller_changed, asyncio.Event()
            news.set()

    async def wait_for_controller_change(self) -> None:
        """Wait until another controller is known, or none any more."""
        await self._controller_changed.wait()

    def _changed(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        for listener in list(self._listeners.values()):  # one may unregister during a notification
            listener(image, delta)
        news, self._image_changed = self._image_changed, asyncio.Event()
        news.set()


def address(host: str, port: int) -> str:
    """`host:port`, an IPv6 address between brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
