"""What one node knows of the cluster: the newest image that it has applied, and who decides.

    quorum or observer --commands--> MetadataStateMachine --image, delta--> MetadataView --> listeners, those who wait

One view a node. It owns the node's state machine, so voter and observer feed it alike. Everything here is a former
state of the cluster's and may be behind; the active controller's own view is not (it decides on it).

Listeners are told on the event loop between two commands, in the order in which they came, and must not wait.
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
        # In the order in which they came. Replaced, not changed: a listener may stop listening while all are told.
        self._listeners: tuple[ImageListener, ...] = ()
        self._news = asyncio.Event()  # replaced with each image
        self._controller: BrokerId | None = None
        self._controller_address: str | None = None
        self._controller_news = asyncio.Event()  # replaced with each change

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    def listen(self, listener: ImageListener) -> Callable[[], None]:
        """From the next image on. The answer stops it."""
        own: ImageListener = lambda image, delta: listener(image, delta)  # noqa: E731  the same listener may come twice
        self._listeners = (*self._listeners, own)

        def stop() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not own)

        return stop

    async def wait_until_applied(self, index: RaftIndex) -> None:
        """Until the command at `index` is in the image. For indexes of commands: other entries make no image."""
        while self.image.index < index:
            await self._news.wait()

    async def wait_until(self, condition: Callable[[MetadataImage], bool]) -> MetadataImage:
        """The first image from now on for which it holds; it may be the present one."""
        while not condition(self.image):
            await self._news.wait()
        return self.image

    def address_of(self, broker_id: BrokerId) -> str | None:
        """`host:port` of a registered node that is not fenced."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        return address(broker.host, broker.port)

    # Who decides.

    @property
    def controller(self) -> BrokerId | None:
        """The active controller; None while this node knows of none."""
        return self._controller

    @property
    def controller_address(self) -> str | None:
        """Its `host:port`."""
        return self._controller_address

    def set_controller(self, controller: BrokerId | None, address: str | None) -> None:
        """Told by whoever follows the leadership; at an observer by whoever found the controller."""
        if (controller, address) != (self._controller, self._controller_address):
            self._controller, self._controller_address = controller, address
            news, self._controller_news = self._controller_news, asyncio.Event()
            news.set()

    async def wait_for_controller_change(self) -> None:
        """Until another one is known, or none any more."""
        await self._controller_news.wait()

    def _changed(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        for listener in self._listeners:
            listener(image, delta)
        news, self._news = self._news, asyncio.Event()
        news.set()


def address(host: str, port: int) -> str:
    """`host:port`, an IPv6 address between brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
