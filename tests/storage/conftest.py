from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamlog.sim.machine import Machine
from tests.storage.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(Machine(1))
    yield rig
    rig.machine.close()
