"""InitProducerId: an id for an idempotent producer, from any node."""

from __future__ import annotations

from typing import Final

from streamlog.api.convert.produce import init_producer_id_request
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.service import Call
from streamlog.errors import UnsupportedVersionError
from streamlog.model import NO_PRODUCER_ID, ProducerEpoch
from streamlog.services.needs import ProducerIds
from streamlog.services.producer_token import ProducerToken

PRODUCER_EPOCH_MAX: Final = 2**15 - 1


class InitProducerId:
    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    async def init_producer_id(self, request: pb.InitProducerIdRequest, call: Call) -> pb.InitProducerIdResponse:
        wanted = init_producer_id_request(request)
        if wanted.transactional_id:
            raise UnsupportedVersionError("this release has no transactions", field="transactional_id")
        producer_id, epoch = wanted.producer_id, wanted.producer_epoch
        if producer_id == NO_PRODUCER_ID or epoch == PRODUCER_EPOCH_MAX:
            producer_id, epoch = await self._producer_ids.next(), ProducerEpoch(0)
        else:
            epoch = ProducerEpoch(epoch + 1)  # sequences begin anew under it, on every partition
        token = ProducerToken(producer_id=producer_id, producer_epoch=epoch)
        return pb.InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch, producer_token=token.encode())
