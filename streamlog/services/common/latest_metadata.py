"""Partitions that a call names and this node does not know: they may have been created just before (SEMANTICS 10.5).

CreateTopics is answered when the controller and the node that forwarded the call have applied the topic; this node may
apply it later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamlog.api.service import Call
from streamlog.metadata.view import MetadataView
from streamlog.model import TopicPartition
from streamlog.services.batches.partition_leader import within
from streamlog.services.common.collaborators import ControllerAccess

APPLY_WAIT_MS: Final = 5_000


async def apply_if_unknown(
    partitions: Iterable[TopicPartition], view: MetadataView, link: ControllerAccess, call: Call
) -> None:
    """What is unknown after it was not created before the call, or the controller was not reached."""
    if not all(map(view.image.has, partitions)):
        await link.catch_up(within(APPLY_WAIT_MS, call) / 1000)
