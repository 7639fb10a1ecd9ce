from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from streamlog.cli.records.standard_input import chunks


async def test_input_that_cannot_be_read_is_not_taken_for_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: directory))
    try:
        with pytest.raises(click.ClickException, match=r"^standard input cannot be read: Is a directory\.$"):
            await anext(chunks())
    finally:
        os.close(directory)
