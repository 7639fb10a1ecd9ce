"""Which files a node has, which regions these have, and how each is damaged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from streamlog.records import scan_headers
from streamlog.records.header import HEADER_SIZE
from tests.damage.disks import Files

HOWS: Final = ("flipped", "cut", "zeroed", "shifted")
REMOVED: Final = "removed"

_LOG_REGIONS: Final[Mapping[str, int]] = {
    "base offset": 6,
    "length": 10,
    "epoch": 15,
    "magic": 16,
    "crc": 18,
    "attributes": 22,
    "last offset delta": 26,
    "producer": 46,
    "records": HEADER_SIZE + 5,
}
"""Region -> byte of a batch."""


class Harm(NamedTuple):
    """One way of damaging one kind of file. `path` is of the leader's node; others have the same or a like one."""

    kind: str  # of the file
    path: str
    region: str
    how: str

    def __str__(self) -> str:
        return f"{self.kind} {self.region} {self.how}"


def kinds(files: Files, topic: str) -> dict[str, str]:
    """Kind of file -> one such file of the topic's first partition, or of the node."""
    found: dict[str, str] = {}
    logs = sorted(path for path in files if re.fullmatch(rf"/data/{topic}-0/\d{{20}}\.log", path))
    closed = [path for path in logs[:-1] if files[path]]
    if closed:
        found["closed log"] = closed[len(closed) // 2]
        found["first log"] = closed[0]
    for path in [path for path in logs if files[path]][-1:]:
        found["active log"] = path
    for kind, suffix in (("index", ".index"), ("timeindex", ".timeindex"), ("txnindex", ".txnindex")):
        one = next((p for p in sorted(files) if f"/data/{topic}-0/" in p and p.endswith(suffix) and files[p]), None)
        if one is not None:
            found[kind] = one
    snapshots = sorted(p for p in files if f"/data/{topic}-0/" in p and p.endswith(".snapshot"))
    if snapshots:
        found["producer snapshot"] = snapshots[-1]
    for path, content in files.items():
        name = path.rsplit("/", 1)[-1]
        of_other = path.startswith("/data/") and path.count("/") > 2 and not path.startswith(f"/data/{topic}-0/")
        is_journal = path.startswith("/data/") and path.count("/") > 2 and not re.match(r"/data/.+-\d+/", path)
        if path.endswith("/") or not content or name.startswith(".lock"):
            continue
        if is_journal:
            found[f"quorum {re.sub('[0-9]+', 'N', name)}"] = path
        elif not of_other and not re.fullmatch(r"\d{20}\..*", name):
            found[name] = path
    return found


def harms(kind: str, path: str, content: bytes) -> Iterator[Harm]:
    for region in regions(kind, content):
        for how in HOWS:
            yield Harm(kind, path, region, how)
    yield Harm(kind, path, "all", REMOVED)
    yield Harm(kind, path, "all", "emptied")


def regions(kind: str, content: bytes) -> dict[str, int]:
    """Region -> position."""
    if kind.endswith(" log"):
        places = [position for position, _ in scan_headers(content, 0, len(content))]
        middle, last = places[len(places) // 2], places[-1]
        found = {name: middle + at for name, at in _LOG_REGIONS.items()}
        return found | {"first batch": 7, "last batch": last + 7, "tail": len(content) - 3}
    if kind in TEXTS:
        lines = content.split(b"\n")
        found, position = {}, 0
        for number, line in enumerate(lines[:-1]):
            name = ("version line", "count line", "first entry")[number] if number < 3 else "last entry"
            found[name] = position + max(0, len(line) - 1)
            position += len(line) + 1
        return found
    size = len(content)
    return {"header": min(4, size - 1), "middle": size // 2, "end": size - 1}


TEXTS: Final = (
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "meta.properties",
    "partition.metadata",
)


def damaged(harm: Harm, content: bytes) -> bytes | None:
    """What becomes of a file like this one; None: it is gone."""
    if harm.how == REMOVED:
        return None
    if harm.how == "emptied":
        return b""
    at = regions(harm.kind, content).get(harm.region)
    if at is None:  # this node's file is shorter
        at = len(content) // 2
    match harm.how:
        case "cut":
            return content[:at]
        case "zeroed":
            return content[:at] + bytes(min(64, len(content) - at)) + content[at + 64 :]
        case "shifted":
            return content[:at] + content[at + 1 :] + b"\0"
    byte = content[at]
    flipped = b"0123456789"[(byte - 48 + 3) % 10] if 48 <= byte < 58 and harm.kind in TEXTS else byte ^ 0x15
    return content[:at] + bytes([flipped]) + content[at + 1 :]
