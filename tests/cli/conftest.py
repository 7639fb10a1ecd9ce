from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamlog.cli.main import main
from tests.cli.served import ServedCluster

Dump = Callable[..., Result]


@pytest.fixture
def dump() -> Dump:
    """`streamlogctl dump` with these arguments; the result has exit_code, stdout and stderr."""

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(main, ["dump", *map(str, arguments)])

    return run


@pytest.fixture
def served() -> Iterator[ServedCluster]:
    """Nodes 1, 2 and 3, without a topic."""
    with ServedCluster() as cluster:
        yield cluster
