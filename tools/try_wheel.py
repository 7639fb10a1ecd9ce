"""Install the wheel of a folder in a fresh virtual environment, and use it as a new user does.

    python tools/try_wheel.py dist

A cluster of one node is started, written to, read from and stopped, by the commands and by the Python client, outside
of this checkout. If there is a wheel of the kernel beside it, that is installed and used too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TIMEOUT_S: Final = 600
RECORDS: Final = 100
USES_KERNEL: Final = (
    "from streamlog.records.checks import kernel; assert kernel.valid_times and kernel.rows, 'it is not used'; "
    "from streamlog.storage.segments import plain_run; "
    "assert plain_run._JOINED is not plain_run.joined_in_python, 'it does not verify what is read'"
)


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else "dist").resolve()
    wheels = sorted(folder.glob("streamlog-*.whl"))
    kernels = sorted(folder.glob("streamlog_kernel-*.whl"))
    if len(wheels) != 1:
        sys.stderr.write(f"one wheel is expected, not {len(wheels)}: run `make dist`\n")
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        environment = Path(scratch) / "venv"
        venv.create(environment, with_pip=True)
        installed = Installed(environment / "bin", Path(scratch))
        options = ["--quiet", "--disable-pip-version-check", "--no-compile"]  # most modules are never loaded
        installed.run("python", "-m", "pip", "install", *options, *map(str, wheels + kernels))
        print(installed.run("streamlogd", "--version").strip())
        if kernels:
            installed.run("python", "-c", USES_KERNEL)
        installed.run("streamlogctl", "local", "start", "--nodes", "1", "--dir", "cluster", "--port", "0")
        try:
            check_cluster(installed)
        finally:
            installed.run("streamlogctl", "local", "stop", "--dir", "cluster")
    print(f"{wheels[0].name} works{' with the kernel' if kernels else ''}")
    return 0


class Installed:
    """The programs of the environment, run in a folder of their own."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        path = f"{programs}:{os.environ['PATH']}"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._environment |= {"PATH": path}

    def use(self, bootstrap_server: str) -> None:
        self._environment["STREAMLOG_BOOTSTRAP_SERVERS"] = bootstrap_server

    def run(self, program: str, *arguments: str, given: str = "") -> str:
        """Its standard output."""
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            cwd=self._folder,
            env=self._environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(
                f"{program} {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def properties(self) -> dict[str, str]:
        """Of the node."""
        lines = (self._folder / "cluster" / "node-1" / "server.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def check_cluster(installed: Installed) -> None:
    server = installed.properties()["listeners"].rpartition("/")[2].replace("\\", "")
    installed.use(server)
    installed.run("streamlogctl", "topic", "create", "orders", "--partitions", "3")
    lines = "".join(f"{number}\n" for number in range(RECORDS))
    installed.run("streamlogctl", "produce", "orders", given=lines)
    read = installed.run("streamlogctl", "consume", "orders", "--from-beginning", "--until-end").split()
    if sorted(map(int, read)) != list(range(RECORDS)):
        raise SystemExit(f"{RECORDS} records were written, these were read: {read}")
    example = (ROOT / "examples" / "produce_consume.py").read_text()
    out = installed.run("python", "-", "--bootstrap-server", server, "--topic", "from-python", given=example)
    if out.count("read: ") != 10:
        raise SystemExit(f"examples/produce_consume.py read:\n{out}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
