"""Clients of all languages write, read in one group, and copy exactly once in another, while nodes are killed with -9.

Each language has a writer, a member of the readers and a member of the copiers. An error that reaches any of them ends
the run. At the end everything that was acknowledged is in the topic once, was read by the readers, and is copied once.

    python -m tests.clients.kills --minutes 5
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from tests.clients.builds import LANGUAGES, why_not
from tests.clients.cases import Row, next_offsets
from tests.clients.drivers import Driver
from tests.e2e.processes import Processes

PARTITIONS: Final = 4
WRITTEN, COPIED = "written", "copied"
RECORDS: Final = 20
"""In one request."""
AHEAD_MAX: Final = 2_000
"""The writers wait for the copiers there."""
REQUESTS_PER_OUTAGE: Final = 5
"""Of each writer, before the killed node is started again."""
POLL_S: Final = 1.0


class Run:
    def __init__(self, processes: Processes, languages: Sequence[str]) -> None:
        self._processes = processes
        self._languages = languages
        self._stopping = asyncio.Event()
        self.requests = dict.fromkeys(languages, 0)
        self.transactions = dict.fromkeys(languages, 0)
        self.aborted = 0
        self.rejoins = 0
        self.kills = 0
        self.longest_s = dict.fromkeys(languages, 0.0)
        """A writer's longest wait for an acknowledgement."""
        self._acknowledged: list[str] = []
        self._read: set[str] = set()
        self._committed: set[tuple[int, int]] = set()
        self._read_twice: list[tuple[int, int]] = []
        self._copied = 0
        self._draining = False

    async def run(self, minutes: float) -> None:
        """Each node once, then in turn until the time has passed; then nothing must be missing."""
        for topic in (WRITTEN, COPIED):
            await self._processes.create_topic(topic, PARTITIONS)
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            for language in self._languages:
                for work in (self._write, self._read_in_group, self._copy):
                    driver = await stack.enter_async_context(Driver(language, self._processes.bootstrap_servers))
                    tasks.create_task(work(driver, language))
            end = time.monotonic() + minutes * 60
            while time.monotonic() < end or self.kills < len(self._processes.node_ids):
                await self._kill_one()
            await self._until_all_is_read()
            self._stopping.set()

    async def _kill_one(self) -> None:
        await self._until_written()
        node_ids = self._processes.node_ids
        node = node_ids[self.kills % len(node_ids)]
        self.kills += 1
        self._processes.kill(node)
        await self._until_written()
        self._processes.start(node)
        for topic in (WRITTEN, COPIED):
            await self._processes.until_in_sync(topic)

    async def _until_written(self) -> None:
        goals = {language: count + REQUESTS_PER_OUTAGE for language, count in self.requests.items()}

        async def written() -> bool:
            return all(self.requests[language] >= goal for language, goal in goals.items())

        await self._processes.until(written)

    # -- the programs

    async def _write(self, driver: Driver, language: str) -> None:
        while not self._stopping.is_set():
            if len(self._acknowledged) - self._copied > AHEAD_MAX or self._draining:
                await asyncio.sleep(0.05)  # the copiers are behind
                continue
            begin = time.monotonic()
            number = self.requests[language]
            values = [f"{language}-{number}-{index}" for index in range(RECORDS)]
            await driver("produce", producer="p", topic=WRITTEN, records=[{"key": one, "value": one} for one in values])
            self.longest_s[language] = max(self.longest_s[language], time.monotonic() - begin)
            self._acknowledged += values
            self.requests[language] += 1

    async def _read_in_group(self, driver: Driver, _: str) -> None:
        await driver("join", member="m", group="readers", topics=[WRITTEN])
        while not self._stopping.is_set():
            polled = await driver("poll", member="m", timeout_s=POLL_S)
            self.rejoins += bool(polled["lost"])
            rows: list[Row] = polled["records"]
            if not rows:
                continue
            self._read_twice += [
                place for row in rows if (place := (row["partition"], row["offset"])) in self._committed
            ]
            self._read |= {row["value"] for row in rows}
            done = await driver("commit", member="m", offsets=next_offsets(rows))
            certain = {one["partition"] for one in done["committed"]}
            self._committed |= {(row["partition"], row["offset"]) for row in rows if row["partition"] in certain}

    async def _copy(self, driver: Driver, language: str) -> None:
        joining: Row = {"member": "m", "group": "copiers", "topics": [WRITTEN], "read_committed": True}
        await driver(
            "open_transactions", producer="t", transactional_id=f"copier-{language}", transaction_timeout_ms=60_000
        )
        await driver("join", **joining)
        while not self._stopping.is_set():
            rows = (await driver("poll", member="m", timeout_s=POLL_S))["records"]
            if not rows:
                continue
            records = [{"key": row["key"], "value": row["value"]} for row in rows]
            done = await driver(
                "transact",
                producer="t",
                topic=COPIED,
                records=records,
                member="m",
                offsets=next_offsets(rows),
                end="commit",
            )
            if done["outcome"] == "committed":
                self._copied += len(rows)
                self.transactions[language] += 1
            else:  # its partitions are another member's: read again from the committed offsets
                self.aborted += 1
                await driver("leave", member="m")
                await driver("join", **joining)

    # -- the end

    async def _until_all_is_read(self) -> None:
        self._draining = True

        async def all_read() -> bool:
            return self._copied >= len(self._acknowledged) and self._read >= set(self._acknowledged)

        await self._processes.until(all_read)

    async def check(self) -> None:
        """Nothing lost, nothing twice."""
        async with Driver("python", self._processes.bootstrap_servers) as driver:
            for topic in (WRITTEN, COPIED):
                found: Counter[str] = Counter()
                for partition in range(PARTITIONS):
                    rows = (await driver("read", topic=topic, partition=partition, read_committed=True))["records"]
                    found.update(row["value"] for row in rows)
                wanted = Counter(self._acknowledged)
                assert not wanted - found, f"lost in {topic}: {list((wanted - found).items())[:5]}"
                assert not found - wanted, (
                    f"twice in {topic}, or never acknowledged: {list((found - wanted).items())[:5]}"
                )
        assert not self._read_twice, f"read again after their commit: {self._read_twice[:5]}"

    def summary(self) -> str:
        lines = [
            f"{self.kills} kills, {len(self._acknowledged)} records written, read and copied once; "
            f"{self.aborted} transactions aborted, {self.rejoins} rejoins of readers"
        ]
        lines += [
            f"{language:<8}{self.requests[language]:>8} requests, longest {self.longest_s[language]:.1f} s; "
            f"{self.transactions[language]} transactions"
            for language in self._languages
        ]
        return "\n".join(lines)


async def run(directory: Path, minutes: float, languages: Sequence[str]) -> str:
    async with Processes(directory) as processes:
        made = Run(processes, languages)
        await made.run(minutes)
        await made.check()
        return made.summary()


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill nodes while clients in all languages write, read and copy.")
    parser.add_argument("--minutes", type=float, default=5.0)
    minutes = parser.parse_args().minutes
    languages = ["python"]
    for name in LANGUAGES:
        why = why_not(name)
        if why is None:
            languages.append(name)
        else:
            print(f"skipped: {why}")
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(run(Path(folder) / "cluster", minutes, languages)))


if __name__ == "__main__":
    main()
