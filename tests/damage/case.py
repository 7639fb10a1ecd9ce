"""One damage, and what came of it.

    harmless   nothing was said, and everything is as it was
    repaired   it was logged or reported, and everything is as before
    reported   something is gone or refused, and an error says which file, or which partition and offset

Anything else is wrong: records that are lost or changed without a word, replicas that differ, a node that ends by a
defect, a partition without a leader and without a reported reason, a hang.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, Final, NamedTuple

from msgspec import Struct

from streamlog.errors import CorruptMessageError, InvariantError, StreamlogError
from streamlog.sim import SimLoop
from streamlog.sim import run as run_simulation
from streamlog.sim.ban import traps
from streamlog.sim.files.disk import DiskFaults
from tests.damage.disks import Files, overwrite, put
from tests.damage.harm import Harm, damaged, kinds
from tests.damage.scene import NODES, READY_S, TOPICS, UNFINISHED, Stage, disks, fill, read, stored

UNTIL_S: Final = 400.0
HARMLESS, REPAIRED, REPORTED, WRONG = "harmless", "repaired", "reported", "WRONG"
TARGETS: Final = ("leader", "follower", "all")
STOPPED, KILLED, RUNNING = "stopped", "killed", "running"


class Case(NamedTuple):
    topic: str  # whose files are damaged
    harm: Harm
    target: str
    state: str  # of the nodes when it happens

    def __str__(self) -> str:
        return f"{self.harm} ({self.topic}) on {self.target}, {self.state}"


class Scene(Struct, frozen=True):
    files: dict[str, Files]  # by node
    values: dict[str, dict[int, bytes]]  # topic -> offset -> value, for readers of committed records
    stored: dict[str, dict[int, tuple[int, bytes]]]  # topic -> offset -> epoch, value
    leaders: dict[str, str]  # topic -> node
    events: frozenset[str]  # what nodes say when nothing is damaged


class Outcome(Struct, frozen=True):
    what: str
    why: str


def simulate(story: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def main(loop: SimLoop) -> None:
        stage = Stage(loop)
        try:
            await story(stage)
        finally:
            stage.world.stop()

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with traps():
            run_simulation(main, seed="damage", until_s=UNTIL_S)
    finally:
        logging.disable(before)


@lru_cache
def scene(killed: bool) -> Scene:
    """The cluster before the damage: stopped in order, or killed."""
    box: list[Scene] = []

    async def story(stage: Stage) -> None:
        stage.start(*NODES)
        await fill(stage)
        await stage.until(lambda: stage.settled(among=3), READY_S)
        await asyncio.sleep(3)  # checkpoints are written
        values = {topic: (await read(stage, topic))[0] for topic in TOPICS}
        image = stage.image()
        assert image is not None
        leaders = {topic: f"n{image.require_topic(topic).partitions[0].leader}" for topic in TOPICS}
        held = {log.partition.topic: stored(log) for log in stage.logs("n1") if log.partition.topic in TOPICS}
        for name in NODES:
            if killed:
                stage.host(name).crash()
            else:
                node = stage.node(name)
                assert node is not None
                node.stop()
        await stage.until(lambda: all(not stage.host(n).alive or _is_done(stage, n) for n in NODES), READY_S)
        box.append(Scene(disks(stage), values, held, leaders, frozenset()))

    simulate(story)
    made = box[0]
    said: set[str] = set()

    async def undamaged(stage: Stage) -> None:
        await _begin(stage, made)
        stage.start(*NODES)
        await stage.until(lambda: stage.settled(among=3), READY_S)
        for topic in TOPICS:
            await read(stage, topic)
        said.update(event for _, event, _ in stage.events)

    simulate(undamaged)
    return Scene(made.files, made.values, made.stored, made.leaders, frozenset(said))


def _is_done(stage: Stage, name: str) -> bool:
    task = stage.host(name).task
    return task is not None and task.done()


async def _begin(stage: Stage, made: Scene) -> None:
    for name in NODES:
        host = stage.host(name)
        host.disk.faults = DiskFaults(cold=0.3)
        put(host.disk, made.files[name])


def outcome_of(case: Case) -> Outcome:
    made = scene(case.state == KILLED)
    box: list[Outcome] = []

    async def story(stage: Stage) -> None:
        box.append(await _Look(stage, case, made).run())

    try:
        simulate(story)
    except Exception as error:  # noqa: BLE001  whatever ends the simulation is the outcome
        if not box:
            last = traceback.format_exception(error)[-3:]
            return Outcome(WRONG, f"the simulation ended: {error!r} {' '.join(last)[:300]}")
    return box[0]


class _Look:
    def __init__(self, stage: Stage, case: Case, made: Scene) -> None:
        self.stage = stage
        self.case = case
        self.made = made
        leader = made.leaders[case.topic]
        follower = next(name for name in NODES if name != leader)
        self.targets = {"leader": [leader], "follower": [follower], "all": list(NODES)}[case.target]
        self.touched: set[str] = set()

    async def run(self) -> Outcome:
        stage, case = self.stage, self.case
        await _begin(stage, self.made)
        if case.state == RUNNING:
            stage.start(*NODES)
            await stage.until(lambda: stage.settled(among=3), READY_S)
        for name in self.targets:
            self._damage(name)
        if case.state != RUNNING:
            stage.start(*NODES)
        whole = await stage.until(lambda: stage.settled(among=3), READY_S)
        await asyncio.sleep(1)
        for name in NODES:  # as the scrubber does
            await self._scrub(name)
        found = {topic: await read(stage, topic) for topic in TOPICS}
        await stage.until(lambda: stage.settled(among=3), 5.0)
        await asyncio.sleep(3)
        return self._judge(found, whole=whole or stage.settled(among=3))

    def _damage(self, name: str) -> None:
        files, case = self.made.files[name], self.case
        path = kinds(files, case.topic).get(case.harm.kind)
        if path is None:
            return
        content = damaged(case.harm, files[path])
        if content != files[path]:
            overwrite(self.stage.host(name).disk, path, content)
            self.touched.add(name)

    async def _scrub(self, name: str) -> None:
        async def work() -> None:
            node = self.stage.node(name)
            assert node is not None
            assert node._plane is not None
            for log in self.stage.logs(name):
                try:
                    await node._plane.replicas.repairs.examine(log, dry_run=False)
                except StreamlogError:
                    continue  # it is offline, and says so

        if self.stage.logs(name):
            await self.stage.host(name).spawn(work())

    # -- what came of it

    def _judge(self, found: dict[str, tuple[dict[int, bytes], list[str]]], *, whole: bool) -> Outcome:
        problems = [*self._defects(), *self._of_readers(found), *self._of_replicas()]
        if problems:
            return Outcome(WRONG, "; ".join(problems[:3]))
        news = self._news()
        errors = [error for _, reported in found.values() for error in reported]
        gone = [topic for topic in TOPICS if found[topic][0] != self.made.values[topic]]
        if errors or gone or not whole:
            reasons = [*(error for error in errors if error != UNFINISHED), *news]
            if not reasons:
                return Outcome(WRONG, f"{', '.join(gone) or 'a replica'} is missing, without a reported reason")
            return Outcome(REPORTED, reasons[0])
        return Outcome(REPAIRED, news[0]) if news else Outcome(HARMLESS, "")

    def _news(self) -> list[str]:
        """What nodes say that they do not say of sound files."""
        found = [
            f"{name}: {event} {fields}"
            for name, event, fields in self.stage.events
            if event not in self.made.events and event not in ORDINARY
        ]
        for name in NODES:
            ended = self.stage.ended(name)
            if ended is not None:
                found.insert(0, f"{name} stopped: {ended}")
        return found

    def _defects(self) -> list[str]:
        found = [f"crash: {crash}" for crash in self.stage.crashes]
        for name in NODES:
            ended = self.stage.ended(name)
            if ended is not None and (
                not isinstance(ended, StreamlogError | OSError) or isinstance(ended, InvariantError)
            ):
                found.append(f"{name} ended by a defect: {ended!r}")
        return found

    def _of_readers(self, found: dict[str, tuple[dict[int, bytes], list[str]]]) -> list[str]:
        problems = []
        for topic, (values, errors) in found.items():
            expected = self.made.values[topic]
            wrong = sorted(offset for offset, value in values.items() if expected.get(offset) != value)
            if wrong:
                problems.append(f"{topic}: {len(wrong)} records differ from offset {wrong[0]} on")
            missing = sorted(expected.keys() - values.keys())
            if missing and set(errors) <= {UNFINISHED} and not self._news():
                problems.append(f"{topic}: {len(missing)} records from {missing[0]} on are missing without a word")
            elif missing and self.case.target != "all" and not self._is_offline():
                problems.append(
                    f"{topic}: {len(missing)} records are missing from offset {missing[0]} on, though others are sound"
                    f" {errors[:1]}"
                )
        return problems

    def _says_so(self, directory: str) -> bool:
        return any(event in CUT and directory in fields for _, event, fields in self.stage.events)

    def _is_offline(self) -> bool:
        return not self.stage.settled(among=1)

    def _of_replicas(self) -> list[str]:
        """What is in sync must hold everything, unless it says that it cannot read it."""
        problems = []
        image = self.stage.image()
        for name in NODES:
            for log in self.stage.logs(name):
                topic = log.partition.topic
                if topic not in TOPICS or image is None:
                    continue
                state = image.require_topic(topic).partitions[log.partition.partition]
                if int(name[1:]) not in state.isr or log.damaged_segments or log.damage is not None:
                    continue
                try:
                    held = stored(log)
                except CorruptMessageError as error:
                    problems.append(f"{topic} on {name}, in sync: {error}")
                    continue
                expected = self.made.stored[topic]
                missing = [o for o in expected if o not in held and o >= log.log_start_offset]
                wrong = [o for o, what in held.items() if expected.get(o, what) != what]
                if log.log_start_offset > 0:
                    problems.append(f"{topic} on {name}, in sync: begins at {log.log_start_offset}")
                if self.case.target == "all" and self._says_so(log.directory):
                    continue  # no replica has it any more
                if missing or wrong:
                    at = min([*missing, *wrong])
                    problems.append(
                        f"{topic} on {name}, in sync: {len(missing)} missing, {len(wrong)} changed from {at} on"
                    )
        return problems


CUT: Final = frozenset({"torn_tail_cut", "log_damaged", "damage_left"})
"""What a node says of records that it cannot have any more."""
ORDINARY: Final = frozenset(
    {
        "broker_gone",
        "controller_active",
        "controller_inactive",
        "controller_timer",
        "fenced",
        "follower_connected",
        "following",
        "heartbeat_unanswered",
        "leadership",
        "leading",
        "log_diverged",
        "node_stopped",
        "observer_stream_lost",
        "quorum_lost",
        "registration_waits",
        "suspected",
        "suspicion_not_reported",
        "became_leader",
    }
)
"""What nodes say when others come late or not at all."""
