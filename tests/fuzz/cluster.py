"""Three streamlogd processes in a scratch directory, and what is watched: alive, serving, logs, memory, disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc

from streamlog.cli.local.start import start_nodes
from streamlog.client import Admin
from streamlog.daemon.local_cluster import LocalCluster

from . import good
from .known import Known

NODES: Final = 3
TOPICS: Final = ("fuzz-0", "fuzz-1")
_START_TIMEOUT_S: Final = 90.0
_TOPICS_MAX: Final = 15  # of those that the fuzzer's calls have made
_SETTINGS: Final = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "controller.quorum.election.timeout.ms": "1000",  # a busy machine deposes no leader
    "controller.quorum.heartbeat.interval.ms": "50",
    "log.segment.bytes": str(16 << 20),
}
# What a node's log says only when something of its own has gone wrong.
_DEFECT: Final = re.compile(r"Traceback|this is a bug|InvariantError|defect| ERROR |stopped:")
_LINE_LENGTH: Final = 400


class FuzzedCluster:
    """`with`: starts; ends with the processes gone."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        self._local = LocalCluster(directory)
        self._port = port
        self._read_to: dict[Path, int] = {}
        self.restarts = 0

    def __enter__(self) -> FuzzedCluster:
        self._local.create(NODES, self._port, _SETTINGS)
        try:
            start_nodes(self._local, self._local.nodes, _START_TIMEOUT_S)
            with Admin(bootstrap_servers=",".join(self.addresses)) as admin:
                for name in TOPICS:
                    admin.create_topic(name, partitions=2)
                admin.create_topic(good.TOPIC, partitions=good.PARTITIONS)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for node in self._local.nodes:
            self._local.kill(node)

    @property
    def addresses(self) -> list[str]:
        return [node.address for node in self._local.nodes]

    def known(self) -> Known:
        with Admin(bootstrap_servers=",".join(self.addresses)) as admin:
            found = admin.describe_topics(list(TOPICS))
            cluster = admin.describe_cluster()
        return Known(
            cluster_id=cluster.cluster_id,
            node_ids=tuple(one.node_id for one in cluster.nodes),
            topics={one.name: bytes(one.topic_id) for one in found},
            groups=("fuzz-group", "fuzz-other"),
        )

    def sweep(self) -> None:
        """Remove topics that calls have made, beyond a few: each takes files and threads' time on three nodes."""
        with Admin(bootstrap_servers=",".join(self.addresses)) as admin:
            names = [one.name for one in admin.list_topics() if one.name not in (*TOPICS, good.TOPIC)]
            if len(names) > _TOPICS_MAX:
                admin.delete_topics(names)

    def rss_mb(self) -> dict[int, int]:
        found = {}
        for node in self._local.nodes:
            if (process := node.process) is not None:
                status = Path(f"/proc/{process.pid}/status").read_text()
                found[node.node_id] = int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) >> 10
        return found

    def disk_mb(self) -> int:
        total = 0
        for folder, _, names in os.walk(self._local.directory):
            for name in names:
                try:
                    total += os.stat(os.path.join(folder, name)).st_blocks * 512
                except FileNotFoundError:
                    pass
        return total >> 20

    def troubles(self) -> Iterator[str]:
        """New since the last time: lines of defects in logs; nodes that have died; they are started again."""
        for node in self._local.nodes:
            yield from self._new_lines(node.log, node.node_id)
            if node.process is None:
                yield f"node {node.node_id} has died: {node.last_log_line()[:_LINE_LENGTH]}"
                self.restarts += 1
                self._local.start(node)

    def _new_lines(self, log: Path, node_id: int) -> Iterator[str]:
        with log.open("rb") as file:
            file.seek(self._read_to.get(log, 0))
            data = file.read(4 << 20)
            self._read_to[log] = file.tell()
        for line in data.decode(errors="replace").splitlines():
            if _DEFECT.search(line):
                yield f"log of node {node_id}: {line[:_LINE_LENGTH]}"

    def not_serving(self, timeout_s: float) -> list[str]:
        """Nodes that do not say that they serve."""
        found = []
        for node in self._local.nodes:
            with grpc.insecure_channel(node.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                check: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/grpc.health.v1.Health/Check")
                try:
                    answer = check(b"", timeout=timeout_s)
                except grpc.RpcError as error:
                    found.append(f"node {node.node_id} does not answer for its health: {error.code().name}")
                    continue
                if answer != b"\x08\x01":
                    found.append(f"node {node.node_id} says that it does not serve")
        return found
