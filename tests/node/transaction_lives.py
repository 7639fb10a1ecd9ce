"""Random lives of transactional producers under all kinds of faults, and what must hold of each (FAULTS I2, I4, I14).

    producers     names `p0`, `p1`; each name has processes one after another, and now and then two at once
    transaction   a few records in partitions of two topics, and an offset of the name's group; committed, aborted, or
                  left open by a process that dies
    reader        reads committed records all the while

When all is healed and no transaction can be open any more, every partition is read anew:
    whole         of each transaction all records are there, or none
    as told       all of one whose commit was confirmed; none of one that was aborted, or never ended
    once          no value twice
    seen          the reader, in the middle of it all, has seen nothing else
    offsets       the group of a name stands where its last committed transaction has put it
    moving        no partition's last stable offset is held
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from streamlog.api import calls
from streamlog.api.pb import transactions_pb2 as pb
from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer
from streamlog.errors import StreamlogError
from streamlog.groups.placement import partition_of
from streamlog.model import NO_BROKER, PartitionId, TopicPartition
from streamlog.node import Node
from streamlog.ports import Ports
from streamlog.sim import SimLoop, run
from streamlog.sim.faults import Fault, Hardware, Kind, draw_plan
from streamlog.sim.nemesis import Nemesis
from streamlog.sim.world import Host, World
from tests.node.calls import Calls, until_done
from tests.node.kit import properties

_END = calls.unary("streamlog.v1.Transactions/EndTransaction", pb.EndTransactionResponse)
NODES = ("n1", "n2", "n3")
SERVERS = "n1:9092,n2:9092,n3:9092"
PARTITIONS = tuple(TopicPartition(topic, PartitionId(index)) for topic in ("a", "b") for index in range(2))
NAMES = ("p0", "p1")
TIMEOUT_MS = 4_000
FAULTS_S = (3.0, 18.0)
# A jump of the wall clock ends transactions early or late; nothing would be wrong then, but the waits would be long.
KINDS = tuple(kind for kind in Kind if kind is not Kind.CLOCK_JUMP)


@dataclass(slots=True)
class Transaction:
    name: str
    number: int  # of all, in the order in which they began
    values: list[bytes] = field(default_factory=list)
    outcome: str = "open"  # committed, aborted, unknown; open: nobody asked for its end


@dataclass
class Life:
    seed: int
    loop: SimLoop
    faults: list[Fault] | None = None
    transactions: list[Transaction] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)
    stats: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"transactions/{self.seed}")
        self.world = World(self.loop, self.seed)
        self.world.listeners.append(lambda host, event, fields: self.stats.update([event]))
        self.nemesis = Nemesis(self.world, NODES, self._start, hardware=Hardware.draw(self.rng, NODES), find=self._find)

    # -- the cluster

    def _start(self, name: str) -> None:
        config = properties(int(name[1:]), len(NODES))
        self.world.host(name).start(lambda ports: Node(config, ports))

    def _nodes(self) -> list[Node]:
        hosts: list[Host] = [self.world.host(name) for name in NODES]
        return [host.node for host in hosts if host.alive and isinstance(host.node, Node)]

    def _find(self, role: str) -> str | None:
        """Who coordinates a producer's transactions, or leads a partition."""
        topic, key = ("__transaction_state", NAMES[0]) if role == "coordinator" else ("a", "")
        for node in self._nodes():
            found = node.view.image.topic_named(topic)
            if found is not None:
                index = partition_of(key, len(found.partitions)) if key else PartitionId(0)
                leader = found.partitions[index].leader
                return None if leader == NO_BROKER else f"n{leader}"
        return None

    # -- producers

    def _producer(self, name: str, ports: Ports) -> AsyncProducer:
        return AsyncProducer(
            bootstrap_servers=SERVERS,
            transactional_id=name,
            transaction_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=2_000,
            delivery_timeout_ms=3_000,
            max_block_ms=6_000,
            ports=ports,
        )

    async def _lives(self, name: str, ports: Ports) -> None:
        """One process of a name after the other, until it is cancelled; the last one may still be there."""
        while True:
            process = asyncio.ensure_future(self._work(name, ports))
            try:
                async with asyncio.timeout(self.rng.uniform(0.5, 6.0)):
                    await asyncio.shield(process)
            except (StreamlogError, TimeoutError):
                if self.rng.random() < 0.5:
                    process.cancel()
                else:  # it goes on as a zombie
                    self._zombies.append(process)
            except asyncio.CancelledError:
                process.cancel()
                raise

    async def _work(self, name: str, ports: Ports) -> None:
        async with self._producer(name, ports) as producer:
            while True:
                await self._one(producer, name)
                await asyncio.sleep(self.rng.uniform(0.0, 0.2))

    async def _one(self, producer: AsyncProducer, name: str) -> None:
        await producer.begin_transaction()
        one = Transaction(name, len(self.transactions))
        self.transactions.append(one)
        try:
            await self._write(producer, one)
        except StreamlogError:
            self.stats["failed"] += 1
            await self._abort(producer, one)
            return
        if self.rng.random() < 0.25:
            await self._abort(producer, one)
            return
        one.outcome = "unknown"
        if self.rng.random() < 0.4:
            self._contradictions.append(asyncio.ensure_future(self._contradict(producer, one.name)))
        try:
            await producer.commit_transaction()
        except StreamlogError:
            # Refused, or not answered. Only when it can be aborted afterwards is it certain that it was not committed.
            await self._abort(producer, one)
            return
        one.outcome = "committed"

    async def _contradict(self, producer: AsyncProducer, name: str) -> None:
        """Somebody with the same identity asks for the other end, at about the same time. Whoever is first is right."""
        identity = producer._required()._identity
        request = pb.EndTransactionRequest(
            transactional_id=name, producer_id=identity.producer_id, producer_epoch=identity.epoch, commit=False
        )
        await asyncio.sleep(self.rng.uniform(0.0, 0.1))
        channel = self.world.host("client").ports.network.connect(f"{self.rng.choice(NODES)}:9092")
        try:
            await _END(channel, request, timeout_s=2.0)
        except StreamlogError:
            self.stats["contradiction_refused"] += 1
        finally:
            await channel.close()

    async def _abort(self, producer: AsyncProducer, one: Transaction) -> None:
        await producer.abort_transaction()
        one.outcome = "aborted"

    async def _write(self, producer: AsyncProducer, one: Transaction) -> None:
        for part in range(self.rng.randint(1, 6)):
            partition = self.rng.choice(PARTITIONS)
            value = b"%d/%d" % (one.number, part)
            one.values.append(value)
            producer.send(partition.topic, value, partition=partition.partition)
            if self.rng.random() < 0.3:
                await producer.flush()
            if self.rng.random() < 0.05:
                await asyncio.sleep(self.rng.uniform(0, 2 * TIMEOUT_MS / 1000))
        await producer.send_offsets({PARTITIONS[0]: one.number}, one.name)

    # -- readers

    async def _watch(self, ports: Ports) -> None:
        while True:
            try:
                await self._read(ports, self.seen, None)
            except StreamlogError:
                await asyncio.sleep(0.2)

    async def _read(self, ports: Ports, found: list[bytes], quiet_s: float | None) -> None:
        consumer = AsyncConsumer(bootstrap_servers=SERVERS, isolation_level="read_committed", ports=ports)
        async with consumer:
            await consumer.assign(PARTITIONS, start=EARLIEST)
            while records := await consumer.poll(timeout_s=quiet_s):
                found += [record.value or b"" for record in records]

    async def _offsets(self, ports: Ports) -> dict[str, int]:
        found = {}
        for name in NAMES:
            async with AsyncConsumer(bootstrap_servers=SERVERS, group_id=name, ports=ports) as consumer:
                place = (await consumer.committed([PARTITIONS[0]]))[PARTITIONS[0]]
                found[name] = -1 if place is None else place.offset
        return found

    # -- the whole

    async def play(self) -> None:
        self.nemesis.start_all()
        host = self.world.host("client")
        ports = host.boot()
        self._zombies: list[asyncio.Future[None]] = []
        self._contradictions: list[asyncio.Future[None]] = []
        for node in self._nodes():
            await node.wait_until_ready()
        await host.spawn(self._prepare(ports))
        faults = self.faults
        if faults is None:
            faults = draw_plan(
                self.rng,
                targets=(*NODES, "coordinator", "coordinator", "leader"),
                hosts=NODES,
                from_s=FAULTS_S[0],
                to_s=FAULTS_S[1],
                kinds=KINDS,
            )
        self.drawn = faults
        working = [host.spawn(self._lives(name, ports)) for name in NAMES]
        watching = host.spawn(self._watch(ports))
        await self.nemesis.run(faults)
        await asyncio.sleep(max(0.0, FAULTS_S[1] - self.loop.now))
        self.nemesis.heal()
        await asyncio.sleep(5)
        ending = [*working, *self._zombies, *self._contradictions]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)
        await asyncio.sleep(3 * TIMEOUT_MS / 1000)
        watching.cancel()
        await asyncio.wait([watching])
        final: list[bytes] = []
        await host.spawn(self._read(ports, final, 3.0))
        self.check(final, await host.spawn(self._offsets(ports)))
        self.world.stop()

    async def _prepare(self, ports: Ports) -> None:
        calls = Calls(ports.network)
        for topic in ("a", "b"):
            await until_done(partial(calls.create_topic, "n2:9092", topic, 2))
        await calls.close()

    def check(self, final: list[bytes], offsets: dict[str, int]) -> None:
        counts = Counter(final)
        assert not [value for value, count in counts.items() if count > 1], "a value twice"
        last = dict.fromkeys(NAMES, -1)
        for one in self.transactions:
            there = [value for value in one.values if value in counts]
            assert len(there) in (0, len(one.values)), f"torn: {one}, of which {there}"
            self.stats[one.outcome] += 1
            match one.outcome:
                case "committed":
                    assert there, f"lost: {one}"
                case "aborted" | "open":
                    assert not there, f"of one that was not committed: {one}"
            if there:
                last[one.name] = one.number
        known = {value for one in self.transactions for value in one.values}
        assert set(counts) <= known, "a phantom"
        strange = set(self.seen) - set(counts)
        assert not strange, f"read as committed, and gone: {sorted(strange)}"
        assert offsets == last, "offsets have not gone with the records"
        for node in self._nodes():
            assert node._plane is not None
            for replica in node._plane.replicas.leaders():
                assert replica.last_stable_offset == replica.high_watermark, f"{replica.partition} is held"
        assert not self.nemesis.bad_stops, self.nemesis.bad_stops


def live(seed: int, faults: list[Fault] | None = None) -> Life:
    kept: list[Life] = []

    async def main(loop: SimLoop) -> None:
        kept.append(Life(seed, loop, faults))
        await kept[0].play()

    run(main, seed=seed)
    return kept[0]
