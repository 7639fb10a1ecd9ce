"""One round: a cluster is made, struck for some minutes, healed, read, stopped; and what must hold then.

    start, topics, clients  ->  events of the plan  ->  heal  ->  it lives, in sync, all is read  ->  stop  ->  files

The checks are the simulation's, on this round's history. Nothing here raises for what a node or client does wrong: it
becomes a finding, and the round goes on to its end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from streamlog.client import AsyncAdmin
from streamlog.client.admin.values import NodeState
from streamlog.errors import StreamlogError, TopicAlreadyExistsError
from streamlog.model import Offset, TopicPartition
from streamlog.sim.history import OperationHistory, Outcome
from tests.cluster.checking.checks import PRODUCE, Evidence, replicas_are_identical, violations
from tests.cluster.checking.replicas import Replica
from tests.cluster.groups.group_eyes import looking
from tests.nemesis.clients.administration import Administration
from tests.nemesis.clients.flow import Flow
from tests.nemesis.clients.membership import restores_votes, two_leaders
from tests.nemesis.clients.workload import DERIVED, KEYED, MEASURED, TOPICS, Workload
from tests.nemesis.faults.machine import Needs, Tools
from tests.nemesis.faults.plan import Event
from tests.nemesis.faults.striker import GIVE_UP_S, LIVE_S, Came, Striker, Struck
from tests.nemesis.results import evidence
from tests.nemesis.results.findings import ErrorsLogged, Findings

from .nodes import Nodes
from .observer import Observer, Seen

START_S: Final = 90.0
QUIET_S: Final = 60.0
"""For what must come to pass once all is healed, times the slack: a bound against hanging. What is measured stands in
`striker`."""
CALM_S: Final = 2.0
"""Load without faults, before the first one and after the last."""


class Settings(Struct, frozen=True, kw_only=True):
    seed: int
    seconds: float  # of faults
    nodes: int = 4
    port: int = 0  # the first one, where nodes have no network of their own; 0: where there is room
    slack: float = 2.0
    plan: Sequence[Event]
    lacking: Mapping[Needs, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)  # of the nodes


class Result(Struct, kw_only=True):
    """What a round has come to, for the report. Times in seconds of its clock."""

    seed: int
    plan: Sequence[Event]
    findings: Findings
    history: OperationHistory
    seen: Seen
    struck: list[Struck]
    came: list[Came]
    counts: Counter[str]
    errors: Counter[str]
    error_texts: Mapping[str, str]
    transactions: list[tuple[float, float]]
    ended: float = 0.0


@contextmanager
def _logged_to(findings: Findings) -> Iterator[None]:
    """In this process only clients log, and their warnings are what faults bring."""
    root, handler = logging.getLogger(), ErrorsLogged(findings)
    before = root.handlers[:]
    root.handlers[:] = [handler]
    try:
        yield
    finally:
        root.handlers[:] = before


class Round:
    def __init__(self, settings: Settings, folder: Path, tools: Tools, findings: Findings) -> None:
        self._settings = settings
        self._folder = folder
        self._tools = tools
        self._findings = findings
        self._began = time.monotonic()
        findings.use_clock(self.now)

    def now(self) -> float:
        return time.monotonic() - self._began

    def _say(self, what: str) -> None:
        print(f"{self.now():7.1f} s  {what}", flush=True)

    async def run(self) -> Result:
        settings, wrong = self._settings, self._findings.wrong
        async with AsyncExitStack() as stack:
            nodes = Nodes(
                self._folder,
                settings.nodes,
                self._tools,
                settings.lacking,
                port=settings.port,
                settings={"controller.quorum.voter.restore.enable": str(restores_votes(settings.seed)).lower()},
                environment=settings.environment,
            )
            stack.callback(nodes.close)
            flow = Flow(self.now, MEASURED)
            workload = Workload(nodes.bootstrap_servers, seed=settings.seed, now=self.now, wrong=wrong, flow=flow)
            administration = Administration(nodes, seed=settings.seed, now=self.now, note=workload.note, wrong=wrong)
            observer = Observer(nodes, now=self.now, wrong=wrong)
            striker = Striker(
                nodes,
                now=self.now,
                find=observer.find,
                longest_pause=flow.longest_pause,
                wait_for_acks=flow.wait_for_acks,
                wrong=wrong,
                say=self._say,
                slack=settings.slack,
                is_voter=administration.membership.is_voter,
                until_votes=administration.membership.until_votes,
            )
            result = Result(
                seed=settings.seed,
                plan=self._settings.plan,
                findings=self._findings,
                history=workload.history,
                seen=observer.seen,
                struck=striker.struck,
                came=striker.came,
                counts=Counter(),
                errors=workload.errors,
                error_texts=workload.error_texts,
                transactions=workload.transactions,
            )
            stack.enter_context(_logged_to(self._findings))
            with looking(workload.group_watch):
                await self._run(nodes, workload, administration, observer, striker, flow)
            result.counts.update(workload.counts())
            result.counts.update({f"admin {name}": count for name, count in administration.done.items()})
            if nodes.network is not None:
                passed, dropped = nodes.network.counts()
                result.counts.update({"frames passed on": passed, "frames dropped": dropped})
            result.ended = self.now()
            return result

    async def _run(
        self,
        nodes: Nodes,
        workload: Workload,
        administration: Administration,
        observer: Observer,
        striker: Striker,
        flow: Flow,
    ) -> None:
        slack = self._settings.slack
        for node in nodes.all:
            node.start()
        if not await self._is_made(nodes):
            return
        await observer.begin()
        try:
            await workload.begin()
            await administration.begin()
            if await flow.wait_for_acks(self.now(), START_S) is None:
                self._findings.wrong("I19", f"{START_S:g} s after the start a partition had no acknowledgement")
            await asyncio.sleep(CALM_S)
            await striker.run(self._settings.plan, self.now() + self._settings.seconds)
            self._say("heal")
            await striker.heal()
            back_s = await flow.wait_for_acks(self.now(), GIVE_UP_S)
            if back_s is None or back_s > LIVE_S * slack:
                self._findings.wrong("I19", f"after the last heal acknowledgements come back in {back_s} s")
            await asyncio.sleep(CALM_S)
            await administration.stop(QUIET_S * slack)
            await workload.stop()
            marks = await self._is_quiet(nodes, workload, administration)
        except asyncio.CancelledError:
            await workload.abandon()
            raise
        finally:
            await observer.end()
            await workload.end()
            await administration.end()
        self._say("stop")
        await self._files(nodes, workload.history, marks)

    async def _is_made(self, nodes: Nodes) -> bool:
        """All nodes are up, and all topics are there."""
        until, problem = self.now() + START_S, ""
        async with AsyncAdmin(bootstrap_servers=nodes.bootstrap_servers, request_timeout_ms=10_000) as admin:
            made: set[str] = set()
            while self.now() < until:
                try:
                    states = [node.state for node in (await admin.describe_cluster()).nodes]
                    if states != [NodeState.ACTIVE] * len(nodes.all):
                        problem = f"nodes are {states}"
                        await asyncio.sleep(0.2)
                        continue
                    for topic in TOPICS:
                        if topic.name not in made:
                            configs = {"min.insync.replicas": str(topic.min_insync_replicas), **topic.configs}
                            try:
                                await admin.create_topic(
                                    topic.name, topic.partitions, topic.replication_factor, configs=configs
                                )
                            except TopicAlreadyExistsError:
                                pass  # it was made by a request that was not answered
                            made.add(topic.name)
                except StreamlogError as error:
                    problem = str(error)
                    await asyncio.sleep(0.2)
                else:
                    return True
        words = "; ".join(f"node {node.node_id}: {node.last_log_line()}" for node in nodes.all)
        self._findings.wrong("start", f"no cluster within {START_S:g} s: {problem}; {words}")
        return False

    async def _is_quiet(self, nodes: Nodes, workload: Workload, administration: Administration) -> evidence.Marks:
        wrong, within_s = self._findings.wrong, QUIET_S * self._settings.slack
        self._say("quiet: replicas are compared, everything is read")
        marks: evidence.Marks = {}
        try:
            marks = await evidence.quiet_marks(nodes.bootstrap_servers, within_s=within_s, now=self.now, wrong=wrong)
            ends = {at: max(found.values(), default=Offset(0)) for at, found in marks.items()}
            self.final_readers = await workload.read_all(ends, within_s)
            await workload.group_reads_all(ends, within_s)
            await workload.check_transactions(within_s)
            await administration.check(within_s)
        except StreamlogError as error:
            wrong("quiet", f"a healthy cluster answers {error!r}")
        return marks

    final_readers: frozenset[str] = frozenset()

    async def _files(self, nodes: Nodes, history: OperationHistory, marks: evidence.Marks) -> None:
        wrong = self._findings.wrong
        replicas: list[Replica] = []
        stopped = await asyncio.gather(*(node.stop() for node in nodes.all))
        for node, in_order in zip(nodes.all, stopped, strict=True):
            if not in_order or not node.is_sound_stop():
                wrong(
                    "stop", f"node {node.node_id} stopped by SIGTERM with status {node.status}: {node.last_log_line()}"
                )
            replicas += await evidence.read_replicas(node, marks, wrong)
            for line in evidence.bad_lines(node):
                wrong("log", line)
        for what in two_leaders(node.log_after(0) for node in nodes.all):
            wrong("I13", what)
        self._check_all_there(history, marks, replicas)
        compacted = frozenset({KEYED.name})
        plain = [replica for replica in replicas if replica.partition.topic != DERIVED.name]
        found = Evidence(history=history, replicas=plain, final_readers=self.final_readers, compacted=compacted)
        for violation in violations(found):
            wrong(violation.invariant, violation.what)
        derived = [replica for replica in replicas if replica.partition.topic == DERIVED.name]
        for what in replicas_are_identical(Evidence(history=history, replicas=derived)):
            wrong("I8", what)
        for what in evidence.gaps(replicas, compacted):
            wrong("I20", what)
        for what in evidence.expired([one for one in replicas if one.partition.topic not in compacted]):
            wrong("I18", what)

    def _check_all_there(self, history: OperationHistory, marks: evidence.Marks, replicas: Sequence[Replica]) -> None:
        """A check of nothing finds nothing."""
        read = {replica.partition for replica in replicas}
        unread = Counter(str(row.partition) for row in history.select(PRODUCE, Outcome.OK) if row.partition not in read)
        for partition, count in unread.items():
            self._findings.wrong("I1", f"{count} acknowledged records of {partition}, of which no replica can be read")
        names = {topic.name for topic in TOPICS}
        wanted: set[tuple[TopicPartition, int]] = {
            (at, node) for at, found in marks.items() if at.topic in names for node in found
        }
        there = {(replica.partition, int(replica.broker)) for replica in replicas}
        if missing := sorted(f"{at} of node {node}" for at, node in wanted - there):
            self._findings.wrong("I8", f"no files of {missing[:5]}")
        if {at.topic for at, _ in wanted} != names:
            self._findings.wrong("I8", "not every topic of the workload could be compared")
