"""The metadata as the quorum's state machine: one on every voter and observer (streamlog.raft.port.StateMachine).

It owns the current image. Commands arrive in log order, each once, and are replayed. An error stops the node: every
other node has the same command.

Commands already in the image are skipped: a voter without a leader also follows as an observer (node.quorum_member),
and then receives commands twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from streamlog.metadata.convert import decode_batch
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import EMPTY_IMAGE, MetadataImage
from streamlog.metadata.image.snapshot import decode_snapshot, encode_snapshot
from streamlog.model import RaftIndex

ImageListener: TypeAlias = Callable[[MetadataImage, MetadataDelta | None], None]
"""Notified of every new image and its changes; None: a snapshot replaced the state, anything may have changed.
Called on the event loop between two commands; must not block.
"""


class MetadataStateMachine:
    def __init__(self, listener: ImageListener | None = None) -> None:
        self._image = EMPTY_IMAGE
        self._listener = listener

    @property
    def image(self) -> MetadataImage:
        return self._image

    def apply(self, index: RaftIndex, command: bytes) -> bytes:
        """The result is empty: the proposer has the decision's response."""
        if index <= self._image.index:
            return b""
        delta = MetadataDelta(self._image)
        delta.replay(decode_batch(command), index)
        self._image = delta.apply()
        if self._listener is not None:
            self._listener(self._image, delta)
        return b""

    def picture(self) -> MetadataImage:
        return self._image

    def encode(self, picture: MetadataImage) -> Iterable[bytes]:
        return encode_snapshot(picture)

    def decode(self, pieces: Sequence[bytes]) -> MetadataImage:
        return decode_snapshot(pieces)

    def install(self, index: RaftIndex, picture: MetadataImage) -> None:
        """`index` may be above the picture's: entries in between were not commands."""
        if picture.index < self._image.index:
            return
        self._image = picture
        if self._listener is not None:
            self._listener(picture, None)
