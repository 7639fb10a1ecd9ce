"""The other systems: a Kafka and a NATS JetStream of three nodes each on the loopback, all replicas on the same disk.

Kafka 4.2 as it ships: a record is acknowledged when all in-sync replicas have it in their page cache, of which two are
required. NATS with `sync_interval: always`: it is acknowledged when a majority has synced it, as by streamlog. Kafka's
classes come from Maven, nats-server from the Go module proxy; `why_no_kafka` and `why_no_nats` say what is missing.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from streamlog.daemon.free_ports import free_ports
from tests.interop import real_kafka

HERE: Final = Path(__file__).parent
NODES: Final = 3
NATS_VERSION: Final = "v2.15.2"
_KAFKA_OPTIONS: Final = ("-Xms512m", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info")
_CLUSTER_ID: Final = "c3RyZWFtbG9nLXRlc3RzIQ"
_READY_S: Final = 600.0
_BUILD_S: Final = 900.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

_KAFKA_PROPERTIES: Final = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
min.insync.replicas=2
group.initial.rebalance.delay.ms=0
"""

_NATS_CONFIG: Final = """\
server_name: n{node}
listen: 127.0.0.1:{port}
jetstream {{ store_dir: "{data}", sync_interval: always }}
cluster {{ name: peers, listen: 127.0.0.1:{route}, routes: [{routes}] }}
"""


def kafka_version() -> str:
    found = re.search(r"<kafka.version>(.+?)</", (HERE / "kafka-tools.xml").read_text())
    assert found is not None
    return found[1]


def why_no_kafka() -> str | None:
    missing = real_kafka.why_not()
    if missing is not None:
        return missing
    for module, package in (("confluent_kafka", "confluent-kafka"), ("aiokafka", "aiokafka")):
        if importlib.util.find_spec(module) is None:
            return f"no {package}: pip install 'streamlog[bench]'"
    return None


def why_no_nats() -> str | None:
    if shutil.which("nats-server") is None and shutil.which("go") is None:
        return "no `nats-server` and no `go` on the PATH: install either to compare with NATS"
    if importlib.util.find_spec("nats") is None:
        return "no nats-py: pip install 'streamlog[bench]'"
    return None


class _Processes:
    """Processes of this run; all are killed at its end."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, command: list[str], log: Path) -> None:
        with log.open("wb") as output:
            child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self._running.append(child)

    def cpu_s(self) -> float:
        """Of all, user and system."""
        return sum(_cpu_s(child.pid) for child in self._running)

    def check(self, folder: Path) -> None:
        for child in self._running:
            if child.poll() is not None:
                raise SystemExit(f"a process of the comparison ended with exit code {child.returncode}: see {folder}")

    def kill(self) -> None:
        for child in self._running:
            child.send_signal(signal.SIGKILL)
        for child in self._running:
            child.wait()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class KafkaCluster:
    def __init__(self, base: Path) -> None:
        self._base = base
        self._processes = _Processes()
        self._classpath = _maven("kafka-tools")
        ports = free_ports(2 * NODES)
        self._ports, self._controllers = ports[:NODES], ports[NODES:]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def start(self) -> None:
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(self._controllers, 1))
        logs = []
        for node, (port, controller_port) in enumerate(zip(self._ports, self._controllers, strict=True), 1):
            folder = self._base / f"kafka-{node}"
            folder.mkdir(parents=True)
            properties = folder / "server.properties"
            properties.write_text(
                _KAFKA_PROPERTIES.format(
                    node=node, voters=voters, port=port, controller_port=controller_port, data=folder / "data"
                )
            )
            self._run("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties))
            logs.append(folder / "broker.log")
            self._processes.start(self._command("kafka.Kafka", str(properties)), logs[-1])

        def started() -> bool:
            self._processes.check(self._base)
            return all("Kafka Server started" in log.read_text(errors="replace") for log in logs)

        _until(started, f"Kafka to start, see {self._base}")

    def create(self, topic: str, partitions: int) -> None:
        from confluent_kafka import admin as kafka_admin

        admin = kafka_admin.AdminClient({"bootstrap.servers": self.bootstrap})
        new = kafka_admin.NewTopic(topic, num_partitions=partitions, replication_factor=NODES)
        for future in admin.create_topics([new], operation_timeout=60).values():
            future.result()

    def perf_producer(self, topic: str, count: int, size: int) -> float:
        """Kafka's own tool, records a second: of its last half, when its code is compiled."""
        said = self._run(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"),
            *("--warmup-records", str(count // 2)),
            *(
                "--producer-props",
                f"bootstrap.servers={self.bootstrap}",
                "acks=all",
                "linger.ms=5",
                "batch.size=262144",
            ),
        )
        last = [line for line in said.splitlines() if "records/sec" in line][-1]
        return float(last.partition(" records/sec")[0].rpartition(" ")[2])

    def cpu_s(self) -> float:
        return self._processes.cpu_s()

    def kill(self) -> None:
        self._processes.kill()

    def _command(self, *arguments: str) -> list[str]:
        return ["java", *_KAFKA_OPTIONS, "-cp", self._classpath, *arguments]

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            self._command(*arguments), capture_output=True, text=True, timeout=_BUILD_S, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise SystemExit(f"{arguments[0]} failed: {(done.stderr or done.stdout).strip()[-2000:]}")
        return done.stdout


class NatsCluster:
    def __init__(self, base: Path) -> None:
        self._base = base
        self._processes = _Processes()
        self._program = _nats_server()
        ports = free_ports(2 * NODES)
        self._ports, self._routes = ports[:NODES], ports[NODES:]
        self.servers = [f"nats://127.0.0.1:{port}" for port in self._ports]

    def start(self) -> None:
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        for node, (port, route) in enumerate(zip(self._ports, self._routes, strict=True), 1):
            folder = self._base / f"nats-{node}"
            folder.mkdir(parents=True)
            config = folder / "nats.conf"
            config.write_text(
                _NATS_CONFIG.format(node=node, port=port, data=folder / "data", route=route, routes=routes)
            )
            self._processes.start([self._program, "-c", str(config)], folder / "server.log")

    def cpu_s(self) -> float:
        return self._processes.cpu_s()

    def kill(self) -> None:
        self._processes.kill()


def _maven(pom: str) -> str:
    file, found = HERE / f"{pom}.xml", HERE / "target" / f"{pom}.txt"
    if not found.exists() or found.stat().st_mtime < file.stat().st_mtime:
        subprocess.run(["mvn", "-q", "-B", "-f", str(file), "validate"], check=True, timeout=_BUILD_S)
    return found.read_text().strip()


def _nats_server() -> str:
    """That of the PATH, else built by Go into target/."""
    found = shutil.which("nats-server")
    if found is not None:
        return found
    program = HERE / "target" / "nats-server"
    if not program.exists():
        environment: Mapping[str, str] = {**os.environ, "GOBIN": str(program.parent.absolute())}
        module = f"github.com/nats-io/nats-server/v2@{NATS_VERSION}"
        subprocess.run(["go", "install", module], check=True, timeout=_BUILD_S, env=environment)
    return str(program)


def _until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _READY_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"still waiting after {_READY_S:g} s for {what}")
        time.sleep(0.1)
