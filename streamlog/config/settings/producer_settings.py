"""The settings of a producer, in addition to those of all clients (`client_settings`)."""

from __future__ import annotations

from typing import Final

from streamlog.config.kinds import INT64_MAX, Boolean, OneOf, Text, count, duration_ms, size_bytes
from streamlog.config.setting import Setting, section

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

ACKS: Final = Setting(
    "acks", OneOf(("all", "1", "0"), {"-1": "all"}), "all",
    doc="What a write waits for: all replicas in sync, the leader alone (1), nothing (0).")
ENABLE_IDEMPOTENCE: Final = Setting(
    "enable.idempotence", Boolean(), True,
    doc="Whether batches have sequence numbers, so that a retry neither duplicates nor reorders records.")
BATCH_SIZE: Final = Setting(
    "batch.size", size_bytes(0, 1 << 30), 16_384,
    doc="The most bytes of a batch, before compression; a larger record has a batch of its own.")
LINGER_MS: Final = Setting(
    "linger.ms", duration_ms(0, 3_600_000), 5,
    doc="How long a record waits for further records in its batch.")
COMPRESSION_TYPE: Final = Setting(
    "compression.type", OneOf(("none", "gzip", "snappy", "lz4", "zstd")), "none",
    doc="How batches are compressed.")
COMPRESSION_GZIP_LEVEL: Final = Setting(
    "compression.gzip.level", count(1, 9), 6, kafka="-1, which is 6",
    doc="The compression level of gzip.")
COMPRESSION_LZ4_LEVEL: Final = Setting(
    "compression.lz4.level", count(0, 16), 0, kafka="9, of 1..17",
    doc="The compression level of lz4.")
COMPRESSION_ZSTD_LEVEL: Final = Setting(
    "compression.zstd.level", count(-131_072, 22), 3,
    doc="The compression level of zstd.")
BUFFER_MEMORY: Final = Setting(
    "buffer.memory", size_bytes(1 << 10, INT64_MAX), 32 << 20,
    doc="How many bytes of records may wait to be sent or acknowledged.")
MAX_BLOCK_MS: Final = Setting(
    "max.block.ms", duration_ms(0, INT64_MAX), 60_000,
    doc="How long sending waits for free bytes in the buffer, or for the metadata of a topic.")
MAX_REQUEST_SIZE: Final = Setting(
    "max.request.size", size_bytes(1 << 10, 1 << 30), 1 << 20,
    doc="The largest request, and so the largest record, before compression.")
MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION: Final = Setting(
    "max.in.flight.requests.per.connection", count(1, 1_000), 5,
    doc="How many requests may be in flight; with idempotence at most 5, as many batches as a node keeps.")
DELIVERY_TIMEOUT_MS: Final = Setting(
    "delivery.timeout.ms", duration_ms(1), 120_000,
    doc="How long a record may take from being sent to being acknowledged, including retries.")
RETRIES: Final = Setting(
    "retries", count(), 2_147_483_647,
    doc="How often a request is retried; delivery.timeout.ms is the better bound.")
PARTITIONER_CLASS: Final = Setting(
    "partitioner.class", Text(), "default",
    doc="Which partition a record goes to: default (by the key's hash, without a key sticky), round-robin, random, "
    "integer-modulo (the key as a number), or a class as module.Class.")
PARTITIONER_IGNORE_KEYS: Final = Setting(
    "partitioner.ignore.keys", Boolean(), False,
    doc="Whether records with a key are distributed like those without.")
PARTITIONER_ADAPTIVE_PARTITIONING_ENABLE: Final = Setting(
    "partitioner.adaptive.partitioning.enable", Boolean(), True,
    doc="Whether records without a key prefer partitions with a short queue.")
TRANSACTIONAL_ID: Final[Setting[str | None]] = Setting(
    "transactional.id", Text(249), None,
    doc="The name under which this producer writes transactions; it fences an older producer of the same name.")
TRANSACTION_TIMEOUT_MS: Final = Setting(
    "transaction.timeout.ms", duration_ms(1), 60_000,
    doc="How long a transaction may stay open before it is aborted.")
TRANSACTION_TWO_PHASE_COMMIT_ENABLE: Final = Setting(
    "transaction.two.phase.commit.enable", Boolean(), False,
    doc="Whether transactions are prepared for an external coordinator, and then have no timeout.")
# fmt: on

PRODUCING: Final = section("Producing", globals())
