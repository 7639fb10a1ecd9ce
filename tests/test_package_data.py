"""Files that are not Python are in the wheel: an editable install has them in any case."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_file_that_is_not_python_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = {f"streamlog/{name}" for name in settings["tool"]["setuptools"]["package-data"]["streamlog"]}
    command = ["git", "ls-files", "streamlog", "pyspark_streamlog"]
    files = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert listed == {name for name in files if not name.endswith((".py", ".pyi"))}
