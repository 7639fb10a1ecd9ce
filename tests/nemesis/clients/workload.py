"""The clients: in this process, on the real client library, at work from the first fault to the last.

Producers, readers and what they record are the simulation's (`tests.cluster.clients.workload`), groups are watched by
its observers (`group_eyes`), transactions are written down in its ledger. Each program that the watch must distinguish
is a `Process` of its own: a mark in the context of its tasks, nothing more.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from itertools import pairwise
from typing import Any, Final

from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer
from streamlog.errors import ProducerFencedError, StreamlogError, UnknownServerError
from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.sim.history import OperationHistory
from streamlog.sim.process import Process
from tests.cluster.checking.checks import PRODUCE
from tests.cluster.clients.workload import Consumer, Producer, Target
from tests.cluster.groups.group_watch import GroupWatch
from tests.cluster.nodes import ConsumerReader, ProducerSender
from tests.cluster.plan import Load, TopicPlan
from tests.cluster.transactions.transaction_ledger import NOTHING, Ledger, Outcome, Transaction

from .flow import Flow

PLAIN: Final = TopicPlan(
    name="plain", partitions=4, replication_factor=3, min_insync_replicas=2, configs={"retention.ms": "604800000"}
)
PAIR: Final = TopicPlan(name="pair", partitions=2, replication_factor=2, min_insync_replicas=1, configs={})
KEYED: Final = TopicPlan(
    name="keyed",
    partitions=1,
    replication_factor=3,
    min_insync_replicas=2,
    configs={"cleanup.policy": "compact", "segment.ms": "10000", "min.cleanable.dirty.ratio": "0.2"},
)
DERIVED: Final = TopicPlan(name="derived", partitions=3, replication_factor=3, min_insync_replicas=2, configs={})
"""Written in transactions alone."""
TOPICS: Final = (PLAIN, PAIR, KEYED, DERIVED)
MEASURED: Final = tuple(TopicPartition(PLAIN.name, PartitionId(number)) for number in range(PLAIN.partitions))
"""Partitions of I19: with three replicas, so that any node may die."""

LOAD: Final = Load(
    producers=2,
    sends_per_s=40.0,
    burst_chance=0.03,
    value_bytes_max=300,
    consumers=1,
    producer={"linger.ms": "5", "delivery.timeout.ms": "120000", "request.timeout.ms": "10000"},
    consumer={"request.timeout.ms": "10000"},
)
GROUP: Final = "readers"
GROUP_TOPICS: Final = (PLAIN, PAIR)
MEMBERS: Final = 3
LIFE_S: Final = (8.0, 40.0)
"""Of a member, until it leaves and comes again."""
TRANSFORMERS: Final = 2
ABORT_CHANCE: Final = 0.2
ANSWERED_S: Final = 180.0
"""Longer than any client's own limit: what has no answer by then never will."""
ABANDONED_S: Final = 5.0
AGAIN_S: Final = 0.3


class Workload:
    """`begin`, later `end`: then all that was sent is answered and all that is there was read."""

    def __init__(
        self, servers: str, *, seed: int, now: Callable[[], float], wrong: Callable[[str, str], None], flow: Flow
    ) -> None:
        self.history = OperationHistory(now)
        self.ledger = Ledger(wrong)
        self.group_watch = GroupWatch(now, wrong, kept=frozenset(topic.name for topic in GROUP_TOPICS))
        self.errors: Counter[str] = Counter()  # who and the code
        self.error_texts: dict[str, str] = {}
        self.transactions: list[tuple[float, float]] = []  # of those committed: begin, end
        self._servers = servers
        self._seed = seed
        self._now = now
        self._wrong = wrong
        self._flow = flow
        self._stopping = asyncio.Event()
        self._tasks: list[tuple[str, asyncio.Task[None]]] = []
        self._producers: list[Producer] = []
        self._readers: list[Consumer] = []
        self._spans: dict[str, list[tuple[Transaction, Offset]]] = {}  # by transformer: where each one began to read
        self._members_stop = asyncio.Event()

    def _random(self, name: str) -> random.Random:
        return random.Random(f"nemesis/{self._seed}/{name}")

    def note(self, who: str, error: StreamlogError) -> None:
        """An error that a program met, and took for one of those that faults bring."""
        key = f"{who}: {error.code}"
        self.errors[key] += 1
        self.error_texts.setdefault(key, str(error)[:300])
        if isinstance(error, UnknownServerError):
            self._wrong("errors", f"{who} was answered {error.code}: {error}")

    # -- begin

    async def begin(self) -> None:
        targets = [
            Target(
                partition=TopicPartition(topic.name, PartitionId(number)),
                keyed=topic.compacted,
                min_insync_replicas=topic.min_insync_replicas,
            )
            for topic in (PLAIN, PAIR, KEYED)
            for number in range(topic.partitions)
        ]
        for number in range(LOAD.producers):
            producer = await AsyncProducer({**self._settings(), **LOAD.producer}).start()
            name = f"p{number}"
            one = Producer(name, ProducerSender(producer), self.history, self._flow, self._random(name))
            self._producers.append(one)
            self._spawn(name, one.run(targets, LOAD))
        self._readers.append(await self._reader("r0"))
        self._spawn("r0", self._readers[0].run())
        for number in range(TRANSFORMERS):
            self._spawn(f"x{number}", self._transform(f"x{number}", MEASURED[number % len(MEASURED)]))
        self._spawn("committed", self._read_committed())
        for number in range(MEMBERS):
            self._spawn(f"m{number}", self._be_member(f"m{number}", static=number == 0))

    def _settings(self) -> dict[str, str]:
        return {"bootstrap.servers": self._servers}

    def _spawn(self, name: str, work: Coroutine[Any, Any, None], process: Process | None = None) -> None:
        context = None if process is None else process.context()
        self._tasks.append((name, asyncio.get_running_loop().create_task(self._guarded(name, work), context=context)))

    async def _guarded(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  a client that ends by anything else is a finding, and the run goes on
            self._wrong("client", f"{name} ended with {error!r}")

    async def _reader(self, name: str) -> Consumer:
        consumer = await AsyncConsumer({**self._settings(), **LOAD.consumer}).start()
        topics = (PLAIN, PAIR, KEYED)
        await consumer.assign([(t.name, number) for t in topics for number in range(t.partitions)], start=EARLIEST)
        return Consumer(name, ConsumerReader(consumer), self.history, self._flow)

    # -- transactions: consume, transform, produce

    async def _transform(self, name: str, source: TopicPartition) -> None:
        rng = self._random(name)
        while not self._stopping.is_set():
            try:
                producer = AsyncProducer(
                    bootstrap_servers=self._servers,
                    transactional_id=name,
                    linger_ms=2,
                    transaction_timeout_ms=15_000,
                    delivery_timeout_ms=12_000,
                    request_timeout_ms=6_000,
                )
                consumer = AsyncConsumer(
                    bootstrap_servers=self._servers, group_id=name, enable_auto_commit=False, request_timeout_ms=6_000
                )
                async with producer, consumer:
                    await producer.init_transactions()
                    found = await consumer.committed([source])
                    at = found[source]
                    place = Offset(0) if at is None else at.offset
                    await consumer.assign({(source.topic, int(source.partition)): place})
                    while not self._stopping.is_set():
                        place = await self._one_transaction(name, rng, source, place, producer, consumer)
            except ProducerFencedError as error:
                self._wrong("I14", f"{name}, the only one of its name, is fenced: {error}")
            except StreamlogError as error:
                self.note("transformer", error)
                await asyncio.sleep(AGAIN_S)

    async def _one_transaction(
        self,
        name: str,
        rng: random.Random,
        source: TopicPartition,
        place: Offset,
        producer: AsyncProducer,
        consumer: AsyncConsumer,
    ) -> Offset:
        """From which offset on the next one reads."""
        records = await consumer.poll(rng.randint(1, 8), timeout_s=0.5)
        if not records:
            return place
        begun = self._now()
        await producer.begin_transaction()
        one = self.ledger.begin(name)
        for _ in records:
            partition = rng.randrange(DERIVED.partitions)
            producer.send(DERIVED.name, one.next_value(), partition=partition)
        one.offset = records[-1].offset + 1
        self._spans.setdefault(name, []).append((one, place))
        await producer.send_offsets({source: Offset(one.offset)}, name)
        if rng.random() < ABORT_CHANCE:
            await producer.abort_transaction()
            self.ledger.decide(one, Outcome.ABORTED)
            consumer.seek(source, place)
            return place
        one.outcome = Outcome.UNKNOWN
        await producer.commit_transaction()
        self.ledger.decide(one, Outcome.COMMITTED)
        self.transactions.append((begun, self._now()))
        return Offset(one.offset)

    async def _read_committed(self) -> None:
        while not self._stopping.is_set():
            try:
                consumer = AsyncConsumer(
                    bootstrap_servers=self._servers, isolation_level="read_committed", request_timeout_ms=10_000
                )
                async with consumer:
                    await consumer.assign([(DERIVED.name, n) for n in range(DERIVED.partitions)], start=EARLIEST)
                    while not self._stopping.is_set():
                        self.ledger.given([record.value for record in await consumer.poll(timeout_s=0.5)])
            except StreamlogError as error:
                self.note("committed reader", error)
                await asyncio.sleep(AGAIN_S)

    # -- groups

    async def _be_member(self, name: str, *, static: bool) -> None:
        rng, lives = self._random(name), 0
        settings = {
            **self._settings(),
            "group.id": GROUP,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
        }
        if static:
            settings["group.instance.id"] = name
        while not self._members_stop.is_set():
            lives += 1
            process = Process(name, lives)
            life = asyncio.get_running_loop().create_task(
                self._one_life(process, settings, rng.uniform(*LIFE_S)), context=process.context()
            )
            try:
                await life
            except StreamlogError as error:
                self.note("member", error)
                await asyncio.sleep(AGAIN_S)
            finally:
                process.kill()

    async def _one_life(self, process: Process, settings: Mapping[str, str], lasts_s: float) -> None:
        until = self._now() + lasts_s
        async with AsyncConsumer(settings) as consumer:
            consumer.subscribe([topic.name for topic in GROUP_TOPICS])
            while not self._members_stop.is_set() and (self._now() < until or self._stopping.is_set()):
                try:
                    records = await consumer.poll(500, timeout_s=0.25)
                    for record in records:
                        partition = TopicPartition(record.topic, PartitionId(record.partition))
                        assert consumer._group is not None
                        self.group_watch.given(GROUP, process, consumer._group.membership, partition, record.offset)
                    if records:
                        await consumer.commit(timeout_s=10)
                except StreamlogError as error:
                    self.note("member", error)
                    await asyncio.sleep(AGAIN_S)
                    consumer.subscribe([topic.name for topic in GROUP_TOPICS])  # a removed member joins again

    # -- end

    async def stop(self) -> None:
        """No more is sent; what was sent is answered. Members go on, and live until `end`."""
        self._stopping.set()
        for producer in self._producers:
            producer.stopping = True
        working = [(name, task) for name, task in self._tasks if not name.startswith(("m", "r"))]
        await self._until_done(working)
        for producer in self._producers:
            await producer.close()

    async def _until_done(self, working: list[tuple[str, asyncio.Task[None]]]) -> None:
        if not working:
            return
        _, pending = await asyncio.wait([task for _, task in working], timeout=ANSWERED_S)
        for name, task in working:
            if task in pending:
                self._wrong("hang", f"{name} is not done {ANSWERED_S:g} s after it was asked to stop")
                task.cancel()

    async def read_all(self, ends: Mapping[TopicPartition, Offset], within_s: float) -> frozenset[str]:
        """A reader of everything, from the beginning; I7. Its name."""
        reader = await self._reader("final")
        self._readers.append(reader)
        wanted = [(partition, end) for partition, end in ends.items() if partition.topic in (PLAIN.name, PAIR.name)]
        try:
            async with asyncio.timeout(within_s):
                await reader.read_until(wanted)
        except TimeoutError:
            behind = {
                str(p): (reader.positions.get(p, 0), end) for p, end in wanted if reader.positions.get(p, 0) < end
            }
            self._wrong(
                "I7", f"within {within_s:g} s a reader from the beginning has come to (and the end is): {behind}"
            )
        return frozenset({"final"})

    async def group_reads_all(self, ends: Mapping[TopicPartition, Offset], within_s: float) -> None:
        """I15, I16: every partition has one owner, and the group is given everything."""
        wanted = {p: end for p, end in ends.items() if p.topic in {topic.name for topic in GROUP_TOPICS}}
        until = self._now() + within_s
        while True:
            behind = {
                str(p): (self.group_watch.frontier(GROUP, p), end)
                for p, end in wanted.items()
                if self.group_watch.frontier(GROUP, p) < end
            }
            owners = self.group_watch.owners(GROUP)
            unowned = [str(p) for p in wanted if len(owners.get(p, ())) != 1]
            if not behind and not unowned:
                return
            if self._now() > until:
                if behind:
                    self._wrong("I16", f"within {within_s:g} s the group was given up to (and the end is): {behind}")
                if unowned:
                    self._wrong("I15", f"after {within_s:g} s without one owner: {unowned}; owners {owners}")
                return
            await asyncio.sleep(0.1)

    async def abandon(self) -> None:
        """The run was interrupted: no caller waits for an answer."""
        for _, task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait([task for _, task in self._tasks], timeout=ABANDONED_S)
        self._tasks.clear()
        self._readers.clear()

    async def end(self) -> None:
        """Members leave, readers close."""
        self._members_stop.set()
        for reader in self._readers:
            reader.stopping = True
        await self._until_done([(name, task) for name, task in self._tasks if name.startswith(("m", "r"))])
        for reader in self._readers:
            for error in reader.errors:
                self.note(f"reader {reader.name}", error)
            await reader.close()

    async def check_transactions(self, within_s: float) -> None:
        """I1, I2, I4, I14: everything that is committed is read, and where the groups stand."""
        consumer = AsyncConsumer(bootstrap_servers=self._servers, isolation_level="read_committed")
        final: list[bytes | None] = []
        partitions = [TopicPartition(DERIVED.name, PartitionId(n)) for n in range(DERIVED.partitions)]
        async with consumer:
            ends = await consumer.end_offsets(partitions)
            await consumer.assign(partitions, start=EARLIEST)
            try:
                async with asyncio.timeout(within_s):
                    while any([await consumer.position(p) < ends[p] for p in partitions]):
                        final += [record.value for record in await consumer.poll(timeout_s=0.5)]
            except TimeoutError:
                self._wrong("I7", f"within {within_s:g} s a reader of committed records does not come to {ends}")
                return
        places = {}
        for name in sorted(self._spans):
            source = MEASURED[int(name.removeprefix("x")) % len(MEASURED)]
            async with AsyncConsumer(bootstrap_servers=self._servers, group_id=name) as asker:
                at = (await asker.committed([source]))[source]
                places[name] = NOTHING if at is None else int(at.offset)
        self.ledger.check(final, places)
        self._check_spans(final)

    def _check_spans(self, final: list[bytes | None]) -> None:
        """Exactly once: what the committed transactions of one transformer have read joins without gap or overlap."""
        there = set(final)
        for name, spans in self._spans.items():
            done = [(int(begin), one.offset) for one, begin in spans if one.values and one.values[0] in there]
            if done and done[0][0] != 0:
                self._wrong("I16", f"{name}: its first committed transaction begins at {done[0][0]}")
            for before, after in pairwise(done):
                if before[1] != after[0]:
                    self._wrong("I4", f"{name}: a committed transaction has read {before}, the next one {after}")

    def counts(self) -> Counter[str]:
        found = self.ledger.counts()
        for row in self.history.select(PRODUCE):
            found[f"sends {row.outcome.value}"] += 1
        found["records polled"] = self._flow.given_count
        found["group commits"] = self.group_watch.commits
        found["partitions taken over in groups"] = self.group_watch.rebalances
        return found
