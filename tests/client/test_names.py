"""What a user finds in streamlog.client: by `dir`, completion, and a star import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import streamlog.client

ROOT = Path(__file__).parents[2]


def test_dir_lists_the_classes_and_loads_none() -> None:
    program = (
        "import sys, streamlog.client as client; print(*dir(client)); "
        "print([name for name in sys.modules if name.startswith('streamlog.client.')])"
    )
    listed, loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=ROOT, check=True
    ).stdout.splitlines()
    assert set(streamlog.client.__all__) <= set(listed.split())
    assert loaded == "[]"


def test_each_name_that_is_listed_is_there() -> None:
    for name in streamlog.client.__all__:
        assert getattr(streamlog.client, name).__module__.startswith("streamlog.client.") or name in (
            "EARLIEST",
            "LATEST",
            "TopicPartition",
        )
