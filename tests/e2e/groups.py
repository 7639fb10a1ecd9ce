"""Members of a group in processes of their own, what they said, and what must hold of it all."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from typing import Any

from tests.e2e.processes import WITHIN_S, Processes


class Program:
    """`tests.e2e.group_program`; what it has is as it said last."""

    def __init__(self, name: str, process: Process, on_news: Callable[[], None]) -> None:
        self.name = name
        self.events: list[dict[str, Any]] = []
        self.owned: set[int] = set()
        self._process = process
        self._on_news = on_news

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def listen(self) -> None:
        """Until it has ended."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            event = json.loads(line)
            self.events.append(event)
            if event["event"] == "assigned":
                self.owned.update(event["partitions"])
            elif event["event"] in ("revoked", "lost"):
                self.owned.difference_update(event["partitions"])
            self._on_news()
        await self._process.wait()
        self.owned.clear()
        self._on_news()

    def kill(self) -> None:
        """SIGKILL."""
        if self.is_running:
            self._process.kill()

    def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


class Group:
    """`async with`; all its programs are dead afterwards."""

    def __init__(self, processes: Processes, name: str, topic: str, partitions: int) -> None:
        self.name = name
        self.programs: list[Program] = []
        self._processes = processes
        self._topic = topic
        self._partitions = partitions
        self._news = asyncio.Event()
        self._listening: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(self, *_: object) -> None:
        for program in self.programs:
            program.kill()
        await asyncio.gather(*self._listening)

    async def start(self) -> Program:
        arguments = [self._processes.bootstrap_servers, self.name, self._topic]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.e2e.group_program", *arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
        )
        program = Program(f"{self.name}-{len(self.programs)}", process, self._news.set)
        self.programs.append(program)
        self._listening.append(asyncio.create_task(program.listen()))
        return program

    def living(self) -> list[Program]:
        return [program for program in self.programs if program.is_running]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def until_owned(self, *, by: int | None = None) -> float:
        """Every partition has one owner, of `by` members all together. When it came to that."""

        def holds() -> bool:
            owned = sorted(partition for program in self.living() for partition in program.owned)
            owners = sum(bool(program.owned) for program in self.living())
            return owned == list(range(self._partitions)) and by in (None, owners)

        await self.until(holds)
        return time.monotonic()

    def events(self, *kinds: str) -> list[tuple[Program, dict[str, Any]]]:
        """Of all programs, by time."""
        found = [(program, event) for program in self.programs for event in program.events if event["event"] in kinds]
        return sorted(found, key=lambda pair: pair[1]["at"])

    def given(self) -> set[tuple[int, int]]:
        """(partition, offset)"""
        return {(event["partition"], event["offset"]) for _, event in self.events("given")}

    async def until_committed(self, ends: dict[int, int]) -> None:
        """Up to there in each partition."""

        def holds() -> bool:
            done = {event["partition"]: event["offset"] for _, event in self.events("committed")}
            return all(done.get(partition, 0) >= end for partition, end in ends.items() if end)

        await self.until(holds)

    def check(self) -> None:
        """Nothing was skipped, no commit went back, no partition had two owners in one epoch (I14 to I16)."""
        owners: dict[tuple[int, int], str] = {}
        for program, event in self.events("assigned"):
            for partition in event["partitions"]:
                first = owners.setdefault((event["epoch"], partition), program.name)
                assert first == program.name, f"epoch {event['epoch']}: {first} and {program.name} have {partition}"
        committed: dict[int, int] = {}
        for program, event in self.events("committed"):
            before = committed.get(event["partition"], 0)
            assert event["offset"] >= before, f"{program.name} commits {event}, after {before} was committed"
            committed[event["partition"]] = event["offset"]
        given = self.given()
        for partition, end in committed.items():
            skipped = [offset for offset in range(end) if (partition, offset) not in given]
            assert not skipped, f"{self.name} was never given {skipped[:5]} of partition {partition}, of {end}"


def summary(name: str, times_s: list[float]) -> str:
    return f"{name}: median {statistics.median(times_s):.3f} s, worst {max(times_s):.3f} s of {len(times_s)}"
