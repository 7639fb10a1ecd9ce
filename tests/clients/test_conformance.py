"""The conformance suite (docs/conformance.md): each case with each client, against one cluster of three processes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.clients.cases import CASES, Case
from tests.clients.drivers import CLIENTS, command_of
from tests.e2e.processes import Processes

pytestmark = [
    pytest.mark.process,
    pytest.mark.clients,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def processes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Processes]:
    async with Processes(tmp_path_factory.mktemp("clients") / "cluster") as made:
        yield made


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", CASES)
async def test_client(case: str, client: str, processes: Processes) -> None:
    command_of(client)  # skips where it cannot be built
    await CASES[case](Case(processes, client, case.replace("_", "-")))
