"""Tests the lowest supported versions of the dependencies: do they install together, and run?

    python tools/lowest.py          a constraints file for pip, made from pyproject.toml
    python tools/lowest.py --run    a virtual environment with exactly these; in it a cluster of three nodes starts,
                                    and records go in and out (`make test-lowest`)

Development does not find a bound that is too low, since pip installs the newest versions. A user who needs an older
version for another program gets it, and a node that does not start.

Everything is in a scratch directory that is removed at the end, the nodes' ports are free ones. A bound of which there
is no wheel for the running Python is built from source by pip, or fails: the lower bounds are those of the oldest
Python that is supported, so that is what to run it with.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_RECORDS: Final = 500  # by each codec
_STEP_TIMEOUT_S: Final = 120.0


def declared() -> list[str]:
    """The requirements of the package itself, without extras."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(document["project"]["dependencies"])


def lowest(requirements: Iterable[str]) -> Iterator[str]:
    """Each requirement with its lowest version alone. ValueError for one that names none: it claims to run with any."""
    # Loaded here: --run needs it in no other environment than the one that the tool itself runs in.
    from packaging.requirements import Requirement
    from packaging.version import Version

    for text in requirements:
        requirement = Requirement(text)
        bounds = [one.version for one in requirement.specifier if one.operator in (">=", "==", "~=")]
        if not bounds:
            raise ValueError(f"{text}: no lowest version is named")
        marker = f"; {requirement.marker}" if requirement.marker else ""
        yield f"{requirement.name}=={max(bounds, key=Version)}{marker}"


def try_out(constraints: Sequence[str]) -> None:
    """CalledProcessError, TimeoutExpired, AssertionError: one of the bounds is wrong."""
    with tempfile.TemporaryDirectory(prefix="streamlog-lowest-") as scratch:
        folder = Path(scratch)
        (folder / "constraints.txt").write_text("\n".join(constraints) + "\n")
        _run([sys.executable, "-m", "venv", str(folder / "venv")])
        binaries = folder / "venv" / "bin"
        pip = [str(binaries / "python"), "-m", "pip", "--disable-pip-version-check"]
        _copy_sources(folder / "sources")
        _run([*pip, "install", "--quiet", "--constraint", str(folder / "constraints.txt"), str(folder / "sources")])
        print(_run([*pip, "list", "--format=freeze"]), flush=True)
        _run([*pip, "check"])
        control = str(binaries / "streamlogctl")
        cluster = str(folder / "cluster")
        try:
            ready = _run([control, "local", "start", "--nodes", "3", "--dir", cluster, "--port", "0"])
            _exercise(control, ready.split()[-1], str(binaries / "python"))
        finally:
            _run([control, "local", "stop", "--dir", cluster])


def _copy_sources(target: Path) -> None:
    """What a wheel is made of, so that it is built beside the checkout and not in it."""
    for name in ("streamlog", "pyspark_streamlog"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, target / name)


def _exercise(control: str, servers: str, python: str) -> None:
    """What each dependency is there for: codecs, columns, tables, regular expressions, health, reflection."""
    environment = {**os.environ, "STREAMLOG_BOOTSTRAP_SERVERS": servers}

    def run(*arguments: str, given: str | None = None) -> str:
        return _run([control, *arguments], given=given, environment=environment)

    run("topic", "create", "orders", "--partitions", "3", "--replication-factor", "3")
    written = [f"{codec} {number}" for codec in _CODECS for number in range(_RECORDS)]
    for codec in _CODECS:
        lines = [line for line in written if line.startswith(f"{codec} ")]
        run("produce", "orders", "--compression", codec, given="\n".join(lines) + "\n")
    for arguments in ((), ("--group", "readers")):
        read = run("consume", "orders", "--from-beginning", "--until-end", *arguments).splitlines()
        if sorted(read) != sorted(written):
            raise AssertionError(f"consume {' '.join(arguments)}: {len(written)} records written, {len(read)} read")
    run("topic", "describe", "orders", "--output", "table")
    run("group", "describe", "readers", "--output", "table")
    _run([python, "-c", _PROGRAM, servers], environment=environment)


# In the environment that is tried: what no command does.
_PROGRAM: Final = """
import faulthandler
import sys
import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from streamlog.client import Consumer, Producer
faulthandler.dump_traceback_later(100, exit=True)  # a step that hangs says where
servers = sys.argv[1]
with Producer(bootstrap_servers=servers, transactional_id="lowest") as producer:
    producer.init_transactions()
    with producer.transaction():
        producer.send("orders", b"in a transaction")
with Consumer(bootstrap_servers=servers, group_id="by-pattern", auto_offset_reset="earliest",
              isolation_level="read_committed") as consumer:
    consumer.subscribe(pattern="ord.*")
    while not any(record.value == b"in a transaction" for record in consumer.poll(timeout_s=30)):
        pass
with grpc.insecure_channel(servers.split(",")[0]) as channel:
    listed = channel.unary_unary("/grpc.health.v1.Health/List")(b"", timeout=10)
    assert health_pb2.HealthListResponse.FromString(listed).statuses
    asked = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    method = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    (answer,) = channel.stream_stream(method)(iter([asked]), timeout=10)  # to its end: an open call can hang the exit
    assert reflection_pb2.ServerReflectionResponse.FromString(answer).list_services_response.service
"""


def _run(command: Sequence[str], *, given: str | None = None, environment: dict[str, str] | None = None) -> str:
    """What it prints. Its output is shown where it fails."""
    done = subprocess.run(
        command, input=given or "", capture_output=True, text=True, env=environment, timeout=_STEP_TIMEOUT_S
    )
    if done.returncode != 0:
        print(f"{' '.join(command)[:500]}\n{done.stdout}{done.stderr}", file=sys.stderr)
    done.check_returncode()
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", action="store_true", help="install them, start a cluster, carry records")
    arguments = parser.parse_args()
    constraints = list(lowest(declared()))
    if not arguments.run:
        print("\n".join(constraints))
        return 0
    try:
        try_out(constraints)
    except (subprocess.SubprocessError, AssertionError) as error:
        print(f"the lowest dependencies do not work: {error}", file=sys.stderr)
        return 1
    print(f"a cluster runs with the lowest of its dependencies, and {len(_CODECS) * _RECORDS} records went through it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
