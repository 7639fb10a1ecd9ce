"""The table of leader epochs of one log (SEMANTICS 5)."""

from __future__ import annotations

from functools import partial

import pytest

from streamlog.errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
)
from streamlog.model import LeaderEpoch, Offset
from streamlog.sim.machine import Machine
from streamlog.storage.files.checkpoints import EpochEntry
from streamlog.storage.log.epochs import LeaderEpochs
from tests.storage.batches import batch
from tests.storage.rig import Rig


def test_epochs_have_the_end_of_each(rig: Rig) -> None:
    """SEMANTICS 2: the latest epoch ends at the log's end, an older one where the next begins."""
    rig.append(b"a", epoch=1)
    rig.append(b"b", epoch=1)
    rig.append(b"c", epoch=4)
    assert rig.log.end_offset_for(LeaderEpoch(4)) == (4, 3)
    assert rig.log.end_offset_for(LeaderEpoch(1)) == (1, 2)
    assert rig.log.end_offset_for(LeaderEpoch(2)) == (1, 2)
    assert rig.log.end_offset_for(LeaderEpoch(0)) == (0, 0)
    assert rig.log.end_offset_for(LeaderEpoch(5)) == (-1, -1)
    with pytest.raises(FencedLeaderEpochError):
        rig.append(b"d", epoch=3)


def test_an_epoch_in_which_nothing_was_written_is_forgotten_by_who_follows_again(rig: Rig) -> None:
    """It led for a moment, under an epoch that the next leader's records are not of: they stand before it there (the
    cluster's simulation, seed 389: such a replica refused them for ever).
    """
    rig.append(b"a")
    rig.do(lambda: rig.log.assign_epoch(LeaderEpoch(1)))
    rig.do(lambda: rig.log.append_as_follower(batch([b"b"], base_offset=1, epoch=0)))
    rig.do(lambda: rig.log.append_as_follower(batch([b"c"], base_offset=2, epoch=2)))
    assert rig.values() == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert [tuple(entry) for entry in rig.log.epochs.entries] == [(0, 0), (2, 2)]
    with pytest.raises(CorruptMessageError):
        rig.do(lambda: rig.log.append_as_follower(batch([b"d"], base_offset=3, epoch=1)))
    rig.sync()
    rig.power_cut()
    assert [tuple(entry) for entry in rig.log.epochs.entries] == [(0, 0), (2, 2)]


def test_replicas_with_the_same_records_have_the_same_table_of_epochs() -> None:
    """One led epoch 1 for a moment and wrote nothing; another leads epoch 2 from the same offset on."""

    def table(rig: Rig) -> list[tuple[int, int]]:
        return [(entry.epoch, entry.start_offset) for entry in rig.log.epochs.entries]

    led, follows = Rig(Machine(1)), Rig(Machine(2))
    for rig in (led, follows):
        rig.append(b"a")
    follows.do(lambda: follows.log.assign_epoch(LeaderEpoch(1)))
    led.do(lambda: led.log.assign_epoch(LeaderEpoch(2)))
    led.append(b"b", epoch=2)
    copied = led.read(1)
    follows.do(lambda: follows.log.append_as_follower(copied))
    assert follows.read(0) == led.read(0)
    assert table(follows) == table(led) == [(0, 0), (2, 1)]
    for rig in (led, follows):
        rig.stop()
        rig.start()
    assert table(follows) == table(led) == [(0, 0), (2, 1)]


def test_a_table_of_an_earlier_release_is_read_without_epochs_that_wrote_nothing() -> None:
    table = LeaderEpochs([EpochEntry(LeaderEpoch(e), Offset(o)) for e, o in ((0, 0), (1, 5), (2, 5), (4, 7))])
    assert [tuple(entry) for entry in table.entries] == [(0, 0), (2, 5), (4, 7)]


def test_records_of_a_restarted_log_are_kept_whatever_the_earlier_table_says(rig: Rig) -> None:
    """After an unclean election a follower copies a log from its start, with records of an older epoch than the one
    that it led itself. It stops before the next checkpoint: the table on disk is that of its earlier log.
    """
    rig.append(b"a")
    rig.append(b"of a history that lost", epoch=9)
    rig.machine.run(rig.directory.checkpoint())
    rig.machine.run(rig.log.restart_at(Offset(200)))
    for offset, epoch in ((200, 5), (201, 5), (202, 10)):
        data = batch([b"%d" % offset], base_offset=offset, epoch=epoch)
        rig.do(partial(rig.log.append_as_follower, data))
    rig.sync()
    for fail in (rig.crash, rig.power_cut, rig.crash):
        fail()
        assert rig.values() == [(200, b"200"), (201, b"201"), (202, b"202")]
        assert [tuple(entry) for entry in rig.log.epochs.entries] == [(5, 200), (10, 202)]
    assert "torn_tail_cut" not in [event for event, _ in rig.events]
