"""The producer states of one log: sequences, epochs, restarts (SEMANTICS 6)."""

from __future__ import annotations

import pytest

from streamlog.errors import (
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from streamlog.model import Offset
from tests.storage.rig import Rig


def test_idempotent_producer(rig: Rig) -> None:
    """SEMANTICS 6."""
    for i in range(7):
        rig.append(b"%d" % i, producer=(9, 0, i))
    retry = rig.append(b"4", producer=(9, 0, 4))
    assert retry.duplicate
    assert (retry.first_offset, retry.next_offset) == (4, 5)
    with pytest.raises(OutOfOrderSequenceError):
        rig.append(b"gap", producer=(9, 0, 9))
    with pytest.raises(OutOfOrderSequenceError):
        rig.append(b"0", producer=(9, 0, 0))  # older than the five that are kept
    with pytest.raises(OutOfOrderSequenceError):
        rig.append(b"epoch", producer=(9, 1, 3))
    rig.append(b"epoch", producer=(9, 1, 0))
    with pytest.raises(ProducerFencedError):
        rig.append(b"zombie", producer=(9, 0, 7))
    assert len(rig.values()) == 8


def test_sequences_wrap(rig: Rig) -> None:
    rig.append(b"a", b"b", producer=(9, 0, 2**31 - 2))
    rig.append(b"c", producer=(9, 0, 0))
    assert rig.append(b"a", b"b", producer=(9, 0, 2**31 - 2)).duplicate


@pytest.mark.parametrize("how", ["stop", "crash", "cut"])
def test_producers_are_remembered_over_a_restart(rig: Rig, how: str) -> None:
    rig.append(b"a", producer=(9, 0, 0))
    rig.append(b"b", producer=(9, 0, 1))
    rig.sync()
    if how == "stop":
        rig.stop()
        rig.start()
    elif how == "crash":
        rig.crash()
    else:
        rig.machine.run(rig.log.truncate(Offset(1)))
        rig.machine.run(rig.log.restore_producers())
        rig.append(b"b", producer=(9, 0, 1))
    assert rig.append(b"b", producer=(9, 0, 1)).duplicate
