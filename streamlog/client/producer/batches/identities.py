"""Producer ids and epochs in a node's responses."""

from __future__ import annotations

from typing import Protocol

from streamlog.client.producer.batches.wire_batch import ProducerIdAndEpoch
from streamlog.errors import UnsupportedVersionError
from streamlog.model import PRODUCER_EPOCH_MAX, ProducerEpoch, ProducerId


class _WithIdentity(Protocol):
    """InitProducerIdResponse, EndTransactionResponse."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...


def identity_in(response: _WithIdentity) -> ProducerIdAndEpoch:
    """UnsupportedVersionError for one that no batch can have."""
    if response.producer_id < 0 or not 0 <= response.producer_epoch <= PRODUCER_EPOCH_MAX:
        raise UnsupportedVersionError(
            f"the node has returned producer id {response.producer_id} with epoch {response.producer_epoch}, which no"
            " batch can have; it may not be a streamlog node"
        )
    return ProducerIdAndEpoch(ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch))
