"""/operations: elections, reassignments in progress and new ones, drains: what is done to partitions and nodes.

elections        partitions not led by their preferred replica; partitions without a leader, and what each choice
                 of an unclean election loses
reassignments    moves in progress, their progress and estimated end, cancel; a new one
drains           all replicas of a node moved away
"""

from __future__ import annotations

from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.pages.operations import drains, elections, reassignments
from streamlog.console.widgets.page import Page, show, view


def register(sampler: ClusterSampler) -> None:
    @view("/operations")
    async def operations() -> None:
        await show(sampler, "Operations", _build)


async def _build(page: Page) -> None:
    await elections.build(page)
    await reassignments.build(page)
    await drains.build(page)
