"""How far a replica's log reaches: its node's answer before an election without a replica in sync (KIP-966)."""

from __future__ import annotations

from typing import Final

from streamlog.metadata.partitions.replica_states import ReplicaState
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch
from streamlog.storage.log.log import Log

EPOCHS_MAX: Final = 32
"""The latest ones. Older ones matter only to replicas that lag by more leaders than that."""


def state_of(log: Log, broker_id: BrokerId, broker_epoch: BrokerEpoch, *, damaged: bool) -> ReplicaState:
    return ReplicaState(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        log_start=log.log_start_offset,
        log_end=log.log_end_offset,
        last_epoch=_last_epoch(log),
        epochs=tuple((entry.epoch, entry.start_offset) for entry in log.epochs.entries[-EPOCHS_MAX:]),
        durable=log.config.syncs_each_append and not log.incomplete,
        damaged=damaged or log.damage is not None,
        incomplete=log.incomplete,
    )


def _last_epoch(log: Log) -> LeaderEpoch:
    """Of the last record that the log has had, also where retention has deleted all of them."""
    epoch = log.last_record_epoch
    return log.epochs.latest if epoch < 0 < log.log_end_offset else epoch
