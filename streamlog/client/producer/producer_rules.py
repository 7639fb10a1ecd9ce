"""A producer's settings, in the form that its parts use."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from streamlog.client.producer.batches.partition_queue import QueueRules
from streamlog.client.producer.batches.wire_batch import Encoding
from streamlog.client.producer.delivery import DeliveryRules
from streamlog.client.producer.produce_link import ProduceLinkRules
from streamlog.client.transactions.transaction_manager import TransactionRules
from streamlog.config import Config
from streamlog.config.client_rules import idempotence_denied
from streamlog.config.settings import client_settings
from streamlog.config.settings import producer_settings as producing
from streamlog.model import Acks
from streamlog.records import Codec

_ACKS: Final = {"all": Acks.ALL, "1": Acks.LEADER, "0": Acks.NONE}
_LEVELS: Final = {
    Codec.GZIP: producing.COMPRESSION_GZIP_LEVEL,
    Codec.LZ4: producing.COMPRESSION_LZ4_LEVEL,
    Codec.ZSTD: producing.COMPRESSION_ZSTD_LEVEL,
}


class ProducerRules(Struct, frozen=True, kw_only=True):
    delivery: DeliveryRules
    batch_bytes: int  # of one open batch
    record_bytes_max: int
    buffer_bytes: int
    max_block_s: float
    adaptive: bool
    transactions: TransactionRules | None  # None: it has no transactional.id

    @classmethod
    def of(cls, config: Config) -> ProducerRules:
        transactional_id = config[producing.TRANSACTIONAL_ID]
        request_bytes = config[producing.MAX_REQUEST_SIZE]
        batch_bytes = min(config[producing.BATCH_SIZE], request_bytes)
        in_flight = config[producing.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION]
        codec = Codec[config[producing.COMPRESSION_TYPE].upper()]
        level = config[_LEVELS[codec]] if codec in _LEVELS else None
        queue = QueueRules(
            linger_s=config[producing.LINGER_MS] / 1000,
            in_flight_max=in_flight,
            wire_bytes_max=batch_bytes,
            # Idempotence by default is disabled by settings that conflict with it, as in Kafka.
            idempotent=config[producing.ENABLE_IDEMPOTENCE] and idempotence_denied(config) is None,
            transactional=transactional_id is not None,
        )
        link = ProduceLinkRules(
            acks=_ACKS[config[producing.ACKS]],
            in_flight_max=in_flight,
            message_bytes_max=request_bytes,
            request_timeout_s=config[client_settings.REQUEST_TIMEOUT_MS] / 1000,
            encoding=Encoding(codec=codec, level=level, transactional=transactional_id is not None),
            transactional_id=transactional_id or "",
            traced=config[client_settings.TRACING_ENABLE],
        )
        delivery = DeliveryRules(
            queue=queue,
            link=link,
            delivery_timeout_s=config[producing.DELIVERY_TIMEOUT_MS] / 1000,
            retries_max=config[producing.RETRIES],
            transactional=transactional_id is not None,
        )
        return cls(
            delivery=delivery,
            batch_bytes=batch_bytes,
            record_bytes_max=request_bytes,
            buffer_bytes=config[producing.BUFFER_MEMORY],
            max_block_s=config[producing.MAX_BLOCK_MS] / 1000,
            adaptive=config[producing.PARTITIONER_ADAPTIVE_PARTITIONING_ENABLE],
            transactions=None if transactional_id is None else _transactions(transactional_id, config),
        )


def _transactions(transactional_id: str, config: Config) -> TransactionRules:
    return TransactionRules(
        transactional_id=transactional_id,
        timeout_ms=config[producing.TRANSACTION_TIMEOUT_MS],
        two_phase=config[producing.TRANSACTION_TWO_PHASE_COMMIT_ENABLE],
        call_timeout_s=config[producing.MAX_BLOCK_MS] / 1000,
        attempt_s=config[client_settings.REQUEST_TIMEOUT_MS] / 1000,
    )
