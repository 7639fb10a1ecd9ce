from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamlog.cli.main import main

Dump = Callable[..., Result]


@pytest.fixture
def dump() -> Dump:
    """`streamlogctl dump` with these arguments; the result has exit_code, stdout and stderr."""

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(main, ["dump", *map(str, arguments)])

    return run
