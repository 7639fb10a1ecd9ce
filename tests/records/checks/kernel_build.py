"""The optional kernel, built from its source for the tests."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "kernel"


@functools.cache
def built_kernel(name: str = "streamlog_kernel") -> ModuleType:
    """One of its modules. Skips the test where there is no C compiler: nodes work without the kernel there too."""
    folder = tempfile.mkdtemp(prefix="streamlog-kernel-")
    try:
        _build("build_ext", "--build-lib", folder, "--build-temp", f"{folder}/objects")
        (library,) = Path(folder).glob(f"{name}*.so")
        spec = importlib.util.spec_from_file_location(name, library)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        shutil.rmtree(folder)


def build_programs(folder: Path, flags: str = "") -> None:
    """Its programs, into `folder`. Skips as above."""
    _build("build_scripts", "--build-dir", str(folder), CFLAGS=flags)


def _build(*command: str, **variables: str) -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    build = [sys.executable, "setup.py", "-q", *command]
    subprocess.run(build, cwd=SOURCE, env={**os.environ, **variables}, check=True, capture_output=True, timeout=120)


def valid_times() -> Callable[..., tuple[int, int] | None]:
    found: Callable[..., tuple[int, int] | None] = built_kernel().valid_times
    return found
