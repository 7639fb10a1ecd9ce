"""The programs of examples/, built by the builds of their languages.

A language whose toolchain is not installed, or whose registry does not answer, is skipped by name; a build that
fails for another reason fails. A build is made once a run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from msgspec import Struct

from tools.stubs.work import UNREACHABLE

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
BUILD_S: Final = 900.0
"""A first build fetches its packages."""


class Language(Struct, frozen=True):
    name: str
    tools: tuple[str, ...]
    build: tuple[str, ...]
    """In its folder of examples/."""

    program: Callable[[str], list[str]]
    """The command that starts a program of it."""

    @property
    def folder(self) -> Path:
        return EXAMPLES / self.name


def _go(program: str) -> list[str]:
    return [str(EXAMPLES / "go" / "bin" / program.replace("-", ""))]


def _java(program: str) -> list[str]:
    target = EXAMPLES / "java" / "target"
    name = "".join(part.capitalize() for part in program.split("-"))
    return ["java", "-cp", f"{target / 'classes'}:{target / 'lib'}/*", f"org.streamlog.examples.{name}"]


def _node(program: str) -> list[str]:
    return ["node", str(EXAMPLES / "node" / f"{program}.js")]


def _rust(program: str) -> list[str]:
    return [str(EXAMPLES / "rust" / "target" / "debug" / program)]


PROTOC: Final = f"{shlex.quote(sys.executable)} -m grpc_tools.protoc"

LANGUAGES: Final = {
    language.name: language
    for language in (
        Language("go", ("go", "make"), ("make", f"PROTOC={PROTOC}"), _go),
        Language("java", ("java", "mvn"), ("mvn", "-q", "-B", "process-classes"), _java),
        Language("node", ("node", "npm"), ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"), _node),
        Language("rust", ("cargo",), ("cargo", "build", "--quiet"), _rust),
    )
}


@cache
def why_not(name: str) -> str | None:
    """None: it is built. Otherwise why it cannot be here."""
    language = LANGUAGES[name]
    missing = [tool for tool in language.tools if shutil.which(tool) is None]
    if missing:
        return f"{name}: {' and '.join(missing)} not installed"
    done = subprocess.run(
        language.build,
        cwd=language.folder,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )
    said = done.stdout + done.stderr
    if done.returncode and any(sign in said for sign in UNREACHABLE):
        return f"{name}: its packages cannot be fetched: {said.strip().splitlines()[0][:300]}"
    assert not done.returncode, f"{' '.join(language.build)}:\n{said}"
    return None


def built(name: str) -> Language:
    """Skips the test where it cannot be built here."""
    why = why_not(name)
    if why is not None:
        pytest.skip(why)
    return LANGUAGES[name]
