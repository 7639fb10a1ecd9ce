"""A log directory on a simulated machine, driven step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from streamlog.model import Appended, BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.records import ProduceLimits, scan_headers, validate
from streamlog.records.decode import decode_batch
from streamlog.sim.machine import Machine
from streamlog.storage.cleaning.retention import advance_start, remove_below_start
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig
from tests.storage.batches import batch

T = TypeVar("T")

PARTITION = TopicPartition("topic", PartitionId(0))
LIMITS = ProduceLimits(message_bytes_max=1 << 20)
DIRECTORY = "/data"


class Rig:
    """`log` is one partition's log; `start` and `stop` are those of the node."""

    def __init__(self, machine: Machine, config: LogConfig | None = None, *, auto_start: bool = True) -> None:
        self.machine = machine
        self.config = config or LogConfig(segment_index_bytes=1024)
        self.events: list[tuple[str, dict[str, object]]] = []
        self.now_ms = 1_000_000
        if auto_start:
            self.start()

    def probe(self, event: str, /, **fields: object) -> None:
        self.events.append((event, fields))

    def start(self) -> None:
        self.machine.run(self._start())

    async def _start(self) -> None:
        machine = self.machine
        self.directory = await LogDirectory.open(
            machine.fs,
            DIRECTORY,
            clock=machine.clock,
            random=machine.random,
            probe=self.probe,
            node_id=BrokerId(1),
            cluster_id="cluster",
        )
        await self.directory.open_logs(lambda _: self.config)
        if PARTITION not in self.directory.logs:
            await self.directory.create_log(PARTITION, self.config)

    @property
    def log(self) -> Log:
        return self.directory.logs[PARTITION]

    def append(self, *values: bytes | None, epoch: int = 0, **fields: object) -> Appended:
        return self.append_bytes(batch(values, **fields), epoch)  # type: ignore[arg-type]  # test shorthand

    def append_bytes(self, data: bytes, epoch: int = 0) -> Appended:
        found = validate(data, 0, len(data), LIMITS, self.now_ms)
        return self.machine.run(
            self._now(lambda: self.log.append_as_leader(data, found, LeaderEpoch(epoch), self.now_ms))
        )

    async def _now(self, call: Callable[[], T]) -> T:
        """A plain call, made inside the machine's process."""
        return call()

    def do(self, call: Callable[[], T]) -> T:
        return self.machine.run(self._now(call))

    def sync(self) -> None:
        self.machine.run(self.directory.group_commit.sync_now())

    def retain(self, now_ms: int | None, deletable_end: int, now_s: float | None = None) -> int:
        """One round of retention; number of segments deleted."""

        async def step() -> int:
            log = self.log
            await advance_start(log, now_ms, Offset(deletable_end), now_s)
            await self.directory.save_log_starts({log.partition: log.log_start_offset})
            return remove_below_start(log, self.directory.saved_log_start(log))

        return self.machine.run(step())

    def read(self, offset: int, size_max: int = 1 << 20, end: int | None = None) -> bytes:
        return self.machine.run(
            self.log.read(Offset(offset), size_max, end_offset=None if end is None else Offset(end))
        )

    def values(self) -> list[tuple[int, bytes | None]]:
        """(offset, value) of all that can be read."""
        found: list[tuple[int, bytes | None]] = []
        offset = self.log.log_start_offset
        while data := self.read(offset):
            for position, header in scan_headers(data, 0, len(data)):
                found += [(r.offset, r.value) for r in decode_batch(data, position) if r.offset >= offset]
                offset = header.next_offset
        return found

    def stop(self) -> None:
        self.machine.run(self.directory.close(BrokerEpoch(7)))

    def power_cut(self) -> None:
        self.machine.power_cut()
        self.start()

    def crash(self) -> None:
        self.machine.crash()
        self.start()
