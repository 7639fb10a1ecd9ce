"""The address of the fork server that may start a process: a socket in a directory of this user's alone.

    DIRECTORY/streamlog-spark-UID/PROTOCOL-PIDNS-PID-STARTED-DIGEST

DIRECTORY: the first of XDG_RUNTIME_DIR, TMPDIR and /tmp that can be used; PROTOCOL: between launcher and server; PIDNS:
the namespace of process ids, as containers may share the directory; PID, STARTED: of Java; DIGEST: of what all
processes of a server have in common, in which each start that it is asked for must agree. streamlog-spark-native
(kernel/streamlog_spark_native.c) knows the name up to the digest, and asks each.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import zlib

from streamlog.spark.launcher.start import THREADS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    from streamlog.spark.launcher.start import Start

PROTOCOL: Final = 2
"""A message of another layout gets another number, here and in streamlog-spark-native."""
_DIRECTORY: Final = "streamlog-spark-{user}"
_DIRECTORY_BYTES: Final = 64
"""unix(7): a path has at most 107, a name here at most 41."""
_OF_OTHERS: Final = 0o077
_SERVERS: Final = 4
"""Of one Java process, in all: more would mean that a variable, or the directory, differs from process to process."""
# Variables that Spark, or a shell, sets for each process or session.
_OWN_PREFIXES: Final = (
    "PYTHON_DAEMON_",
    "PYTHON_FAULTHANDLER_",
    "PYTHON_TRACEBACK_",
    "PYTHON_UDF_",
    "PYTHON_UNIX_",
    "PYTHON_WORKER_",
    "SPARK_",
)
_OWN_NAMES: Final = frozenset(
    {
        "_",
        "SHLVL",
        "PWD",
        "OLDPWD",
        "PYSPARK_EXECUTOR_MEMORY_MB",
        "PYSPARK_PLANNER_MEMORY_MB",
        "PYSPARK_SPARK_SESSION_UUID",
        THREADS,
    }
)
_PATH: Final = "PYTHONPATH"


def server_address(start: Start, parent: int) -> str:
    """The path of the fork server's socket. `start`: of this process. `parent`: the process id of Java. OSError: there
    is no such process, or no directory.
    """
    digest = common_digest(start, own_python(), "self")
    return f"{_private_directory(start.environment)}/{names_of_java(parent)}{digest}"


def own_python() -> list[str]:
    return [sys.executable, *sys.path]


def common_digest(start: Start, python: Sequence[str], launcher: str) -> str:
    """Of the facts that a fork has in common with its server. `launcher`: its name in /proc. OSError."""
    common = {name: value for name, value in start.environment.items() if not is_of_one_process(name)}
    if _PATH in common:  # Spark names entries twice when it looks data sources up; sys.path has each one once
        common[_PATH] = os.pathsep.join(dict.fromkeys(common[_PATH].split(os.pathsep)))
    directory = os.stat(f"/proc/{launcher}/cwd")
    places = [os.readlink(f"/proc/{launcher}/{name}") for name in ("cwd", "ns/mnt")]
    facts = (
        os.getuid(),
        places,
        directory.st_dev,
        directory.st_ino,
        start.programs,
        list(python),
        sorted(common.items()),
    )
    return f"{zlib.crc32(ascii(facts).encode()):08x}"


def make_room(address: str, parent: int) -> None:
    """Removes the sockets of Java processes that have ended. OSError: `parent` has servers enough."""
    directory = os.path.dirname(address)
    mine = 0
    for name in os.listdir(directory):
        *protocol, namespace, process, _, _ = ("", "", "", "", *name.split("-"))
        if namespace != _namespace():
            continue
        if name.startswith(names_of_java(parent)):
            mine += 1
        elif (process == str(parent) and protocol[-1] == str(PROTOCOL)) or not os.path.exists(f"/proc/{process}"):
            with contextlib.suppress(OSError):
                os.unlink(f"{directory}/{name}")
    if mine >= _SERVERS:
        raise BlockingIOError


def names_of_java(process: int) -> str:
    """With which the names of its servers begin."""
    return f"{PROTOCOL}-{_namespace()}-{process}-{_started(process)}-"


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)


def _private_directory(environment: Mapping[str, str]) -> str:
    """PermissionError: none serves."""
    for base in (environment.get("XDG_RUNTIME_DIR"), environment.get("TMPDIR"), "/tmp"):
        path = f"{base}/{_DIRECTORY.format(user=os.getuid())}"
        if base and len(os.fsencode(path)) <= _DIRECTORY_BYTES and _made_private(path):
            return path
    raise PermissionError


def _made_private(path: str) -> bool:
    """Whether it is a directory of this user's alone."""
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, mode=0o700)
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & _OF_OTHERS


def is_of_one_process(name: str) -> bool:
    """A variable that Spark, or a shell, sets for each process or session."""
    return name in _OWN_NAMES or name.startswith(_OWN_PREFIXES)


def _started(process: int) -> str:
    """When, in ticks since the machine's start: process ids are reused."""
    # proc(5): field 22; the second one, the program's name in parentheses, may contain anything
    with open(f"/proc/{process}/stat", "rb") as facts:
        return facts.read().rpartition(b")")[2].split()[19].decode()
