"""The runbook "Upgrade", walked: three nodes of release 0.1.0 become nodes of this one, one after the other, under
load, and one returns to 0.1.0 before metadata.version is raised; afterwards 0.1.0 refuses to start.

The nodes are real processes; those of 0.1.0 run its frozen code (release-0.1.0). The load: a producer of this release
with a writer for each partition, and a client of 0.1.0, which reads in a group and writes in transactions with its
offsets, so nodes of each release serve clients of both. Nothing acknowledged is lost, nothing stands twice.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.coordinator.transactions import TRANSACTIONS_TOPIC
from streamlog.groups.placement import OFFSETS_TOPIC
from streamlog.metadata.features import METADATA_VERSION_MAX
from tests.e2e.load import Load
from tests.e2e.processes import Processes
from tests.e2e.transform import SOURCE, TARGET, Transformation
from tests.operations.release import LEVEL, started_from, unpack_code
from tests.operations.runbook import commands

pytestmark = pytest.mark.process

TOPIC = "logs"
PARTITIONS = 3
TOPICS = (TOPIC, SOURCE, TARGET, TRANSACTIONS_TOPIC, OFFSETS_TOPIC)
EACH = 30
"""Numbers that the earlier client transforms while a node restarts."""
EARLIER_RELEASE_S = 10.0


class Upgrade:
    def __init__(self, processes: Processes, load: Load, transformation: Transformation) -> None:
        self.processes = processes
        self._load = load
        self._transformation = transformation

    async def run(self, words: list[str]) -> str:
        """A command of the runbook; its exit code is 0."""
        environment = {"STREAMLOG_BOOTSTRAP_SERVERS": self.processes.bootstrap_servers}
        done = await asyncio.to_thread(CliRunner().invoke, main, words, env=environment)
        assert done.exit_code == 0, f"{words}: {done.output}"
        return done.stdout

    async def restart(self, node_id: int, code: Path | None) -> None:
        """With this code, or, for None, the present one; the cluster is written to and read from meanwhile.

        A leader of the earlier release may miss a follower's position while it compares logs, and leave it out of the
        ISR until the next append, which waits for the ISR. The node that comes back ends that.
        """
        others = [level for other, level in (await self.supported()).items() if other != node_id]
        async with self._transformation.feeding(EACH, through=EACH // 3):
            self.processes.stop(node_id)
            try:
                async with asyncio.timeout(EARLIER_RELEASE_S if LEVEL in others else None):
                    await self._load.until_acknowledged(20)
            except TimeoutError:
                assert LEVEL in others
            self._start(node_id, code)
        await self._transformation.until_done()
        await self._load.until_acknowledged(20)
        for topic in TOPICS:
            await self.processes.until_in_sync(topic)

    async def refuses_to_start(self, node_id: int, code: Path) -> None:
        """With this code, since the cluster's metadata.version is above what it supports; its log says so."""
        self.processes.stop(node_id)
        self._start(node_id, code)

        async def exited() -> bool:
            return not self.processes.is_running(node_id)

        await self.processes.until(exited)
        # By its own journal, or by the controller's answer to its registration, whichever is first.
        message = rf"the cluster is at (metadata\.version )?{METADATA_VERSION_MAX}\b"
        assert re.search(message, self.processes.last_log_line())

    def _start(self, node_id: int, code: Path | None) -> None:
        if code is None:
            self.processes.start(node_id)
        else:
            with started_from(code):
                self.processes.start(node_id)

    async def supported(self) -> dict[int, int]:
        """Of each node: its highest metadata.version, which says the release that it runs."""
        nodes = (await self.processes.admin.describe_cluster()).nodes
        return {node.node_id: node.metadata_version_max for node in nodes}


@pytest.mark.skipif(sys.version_info < (3, 11, 3), reason="release 0.1.0 needs Python 3.11.3")
async def test_node_by_node_and_back_and_again(tmp_path: Path) -> None:
    code = unpack_code(tmp_path / "release-0.1.0")
    health, under_replicated, upgrade = commands("Upgrade")
    processes = Processes(tmp_path / "cluster")
    with started_from(code):
        await processes.__aenter__()
    try:
        await processes.create_topic(TOPIC, PARTITIONS)
        load = Load(processes, TOPIC, PARTITIONS)
        async with Transformation(processes) as transformation, asyncio.TaskGroup() as tasks:
            await transformation.start(code)
            await transformation.feed(1)
            await transformation.until_done()
            tasks.create_task(load.run())
            one = Upgrade(processes, load, transformation)
            assert await one.supported() == dict.fromkeys(processes.node_ids, LEVEL)
            for node_id in processes.node_ids:
                await one.run(health)
                await one.restart(node_id, None)
            assert await one.supported() == dict.fromkeys(processes.node_ids, METADATA_VERSION_MAX)
            await one.restart(2, code)
            assert (await one.supported())[2] == LEVEL
            await one.restart(2, None)
            await one.run(health)
            assert TOPIC not in await one.run(under_replicated)
            assert await one.run(upgrade) == f"metadata.version is {METADATA_VERSION_MAX}.\n"
            await load.until_acknowledged(20)
            load.stop()
            await transformation.check()
        await load.check()
        assert not load.refused
        await one.refuses_to_start(2, code)
    finally:
        await processes.__aexit__()
