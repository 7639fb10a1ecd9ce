from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.start()
    yield rig
    if not rig.task.done():
        rig.stop()
    rig.machine.close()


@pytest.fixture
def leading(rig: Rig) -> Rig:
    """It leads the only partition of `t`."""
    rig.create()
    rig.rest()
    return rig
