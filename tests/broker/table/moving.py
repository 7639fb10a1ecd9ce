"""A node with two log directories, and a replica that moves between them."""

from __future__ import annotations

from streamlog.model import Offset, TopicPartition
from streamlog.records import scan_headers
from tests.broker.rig import ME, P0, Rig, values_in

T0 = TopicPartition("t", P0)
CONFIGS = {"file.delete.delay.ms": "1000"}


def started(seed: int | str = 1, *, replicas: tuple[int, ...] = (ME,)) -> Rig:
    """A leader of t-0, which is in /data0."""
    rig = Rig(seed, directories=2)
    rig.start()
    rig.create(replicas=replicas, configs=CONFIGS)  # type: ignore[arg-type]  # test shorthand
    rig.rest()
    resigning(rig)
    return rig


def resigning(rig: Rig, leader: int = ME) -> None:
    """The controller gives the partition a new leader epoch."""

    def resign() -> None:
        commit_inside(rig, leader=leader)

    rig.controller.on_resigned = resign


def commit_inside(rig: Rig, **changes: object) -> None:
    """`Rig.change`, from inside the node's process."""
    before = rig.do
    rig.do = lambda call: call()  # type: ignore[method-assign]  # it is there already
    try:
        rig.change(1, **changes)
    finally:
        rig.do = before  # type: ignore[method-assign]


def fill(rig: Rig) -> list[bytes]:
    """Three segments, after the first one was deleted. Returns the values, from offset 5 on."""
    written = [b"value %03d" % number for number in range(12)]
    log = rig.leader("t").log
    for number, value in enumerate(written):
        if number % 3 == 0:
            rig.do(log.roll_now)
        rig.produce(value)
    rig.machine.run(rig.replicas.delete_records("t", None, P0, Offset(5), within_s=1.0))
    rig.do(lambda: log.remove_oldest(1))
    rig.rest()
    return written[5:]


def move(rig: Rig, path: str = "/data1") -> None:
    rig.do(lambda: rig.replicas.move_log("t", None, P0, path))


def values(rig: Rig) -> list[bytes | None]:
    leader = rig.leader("t")
    found: list[bytes | None] = []
    offset = leader.log_start_offset
    while offset < leader.high_watermark:
        data = rig.read(offset)
        for position, header in scan_headers(data, 0, len(data)):
            records = values_in(data[position : position + header.size_bytes])
            found += records[max(0, offset - header.base_offset) :]
            offset = header.next_offset
    return found


def where(rig: Rig) -> list[int]:
    return [index for index, directory in enumerate(rig.directories) if T0 in directory.logs]


def slow(rig: Rig, rate: int) -> None:
    """Moves copy so many bytes a second from now on."""
    rig.static["replica.alter.log.dirs.io.max.bytes.per.second"] = str(rate)
    rig.restart()
    rig.rest()
    resigning(rig)
