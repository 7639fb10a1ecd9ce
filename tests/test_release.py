"""One source of the version, and a changelog that says what is in it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import streamlog
from streamlog import client
from streamlog.release import RELEASE

ROOT = Path(__file__).parent.parent
SECTIONS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_version_has_one_source() -> None:
    assert streamlog.__version__ == RELEASE == version("streamlog")


def test_the_changelog_is_in_the_form_of_keep_a_changelog() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    releases = [line for line in lines if line.startswith("## ")]
    assert releases[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", line) for line in releases[1:])
    assert {line.removeprefix("### ") for line in lines if line.startswith("### ")} <= SECTIONS


def test_release_notes_are_those_of_this_release() -> None:
    notes = subprocess.run(
        [sys.executable, "tools/release_notes.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert notes.startswith(f"# streamlog {RELEASE}\n\n")
    assert "### Added" in notes


def test_every_public_name_of_the_client_is_there() -> None:
    """They are loaded when they are first used, by names of modules that no type checker sees."""
    assert [name for name in client.__all__ if not hasattr(client, name)] == []
