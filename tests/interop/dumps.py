"""Kafka's files, and our dumps of them."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from streamlog.cli.main import main


def our_dump(files: list[Path], *options: str) -> list[str]:
    """Lines on standard output; nothing must be on standard error."""
    done = CliRunner().invoke(main, ["dump", *options, *map(str, files)])
    assert (done.exit_code, done.stderr) == (0, "")
    return [line.rstrip() for line in done.stdout.split("\n")]


def files(data: Path, topic: str, *suffixes: str) -> list[Path]:
    found = sorted(file for file in (data / f"{topic}-0").iterdir() if file.suffix in suffixes)
    assert found
    return found
