"""A real Kafka: its classes from Maven, its tools as processes, a single-node KRaft broker on the loopback.

Nothing of Kafka is kept in the repository: pom.xml names the artifacts, Maven brings them, `target/classpath.txt`
(ignored by git) says where they are.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from streamlog.daemon.free_ports import free_ports

HERE: Final = Path(__file__).parent
JAVA_MAJOR_MIN: Final = 17  # Kafka 4's brokers refuse older ones
# Small heaps and no optimising compiler: these processes live for seconds.
BRIEF: Final = ("-Xmx400m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info")
_TIMEOUT_S: Final = 120.0
# What DumpLogSegments finds odd in any compacted log: offsets are missing, and it looks for the largest timestamp
# among the records of a batch, where the last batch of a producer may have none left.
_OF_COMPACTION: Final = re.compile(
    r"Non-consecutive offsets in .*|  \d+ is followed by \d+"
    r"|Found timestamp mismatch in :.*|  Index timestamp: \d+, log timestamp: -1"
)

_SERVER_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.initial.task.delay.ms=100
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=4194304
"""


def why_not() -> str | None:
    """What is missing for a real Kafka, as one sentence; None when all is there."""
    if shutil.which("java") is None:
        return "no `java` on the PATH: install Java 17 or newer to run the tests against a real Kafka"
    if shutil.which("mvn") is None:
        return "no `mvn` on the PATH: install Maven to run the tests against a real Kafka"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_MAJOR_MIN:
        return f"Kafka needs Java {JAVA_MAJOR_MIN} or newer, `java -version` says: {said.splitlines()[0]}"
    return None


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Ask another process's state until it is as wanted; AssertionError naming `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"still waiting after {timeout_s} s: {what}"
        time.sleep(0.05)


def _classpath() -> str:
    found, pom = HERE / "target" / "classpath.txt", HERE / "pom.xml"
    if not found.exists() or found.stat().st_mtime < pom.stat().st_mtime:
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom), "validate"], check=True, timeout=600)
    return found.read_text().strip()


class Kafka:
    """Kafka's classes, ready to run. Stateless."""

    def __init__(self, jvm_options: Sequence[str] = BRIEF) -> None:
        self._classpath = _classpath()
        self._jvm_options = jvm_options

    def command(self, *arguments: str) -> list[str]:
        return ["java", *self._jvm_options, "-cp", self._classpath, *arguments]

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a class to its end; its output, whatever its exit code."""
        return subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )

    def produce(self, script: str) -> None:
        """Run ScriptedProducer on the script (see there); AssertionError with its words if it fails."""
        done = self.run(str(HERE / "ScriptedProducer.java"), stdin=script)
        assert done.returncode == 0, done.stderr

    def dump(self, files: Iterable[Path], *options: str, compacted: bool = False) -> str:
        """What DumpLogSegments prints of the files; AssertionError where it fails or complains on stderr, but for
        what it finds odd in `compacted` logs.
        """
        names = ",".join(str(file) for file in files)
        done = self.run("kafka.tools.DumpLogSegments", *options, "--files", names)
        assert done.returncode == 0, done.stderr
        complaints = [line for line in done.stderr.splitlines() if not (compacted and _OF_COMPACTION.fullmatch(line))]
        assert complaints == []
        return done.stdout


class Broker:
    """One broker process on a data directory; start and stop it as often as needed."""

    def __init__(self, kafka: Kafka, root: Path) -> None:
        """`root` holds `data`, `server.properties` and `broker.log`; `data` is formatted unless it is there."""
        self.data = root / "data"
        self._kafka = kafka
        self._log = root / "broker.log"
        self._properties = root / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        root.mkdir(parents=True, exist_ok=True)
        settings = _SERVER_PROPERTIES.format(port=port, controller_port=controller_port, data=self.data)
        self._properties.write_text(settings)
        if not self.data.exists():
            self._format()

    def _format(self) -> None:
        # The cluster id: any 16 bytes in base64.
        done = self._kafka.run(
            "kafka.tools.StorageTool", "format", "-t", "c3RyZWFtbG9nLXRlc3RzIQ", "-c", str(self._properties)
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start, and wait until it serves."""
        with self._log.open("wb") as log:
            command = self._kafka.command("kafka.Kafka", str(self._properties))
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        wait_until(self._is_up, f"the broker to start, see {self._log}")

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the broker ended: {self.log_text()[-4000:]}"
        return "Kafka Server started" in self.log_text()

    def log_text(self) -> str:
        """What the broker logged since it was last started."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """A clean stop: segments flushed and trimmed, checkpoints and the clean-shutdown mark written."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(_TIMEOUT_S)
        assert code in (0, 143), f"exit code {code}: {self.log_text()[-4000:]}"
        self._process = None

    def kill(self) -> None:
        """SIGKILL: nothing is trimmed, no checkpoint, no mark. A no-op on a broker that does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_TIMEOUT_S)
            self._process = None
