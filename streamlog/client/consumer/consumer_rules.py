"""A consumer's settings, in the form that its parts use."""

from __future__ import annotations

from typing import Final

from streamlog.api.pb import batches_pb2 as pb
from streamlog.client.connection.client_ports import RECEIVE_BYTES_MAX
from streamlog.client.consumer.fetcher import FetchRules
from streamlog.client.consumer.offset_finder import ISOLATION
from streamlog.config import Config
from streamlog.config.settings import consumer_settings as consuming
from streamlog.model import IsolationLevel

# The target size of a response; larger ones only make the next one wait longer.
_RESPONSE_BYTES: Final = 1 << 20
# gRPC's default limit on a received message.
_DEFAULT_RECEIVE_BYTES: Final = 4 << 20


def isolation_of(config: Config) -> IsolationLevel:
    return IsolationLevel[config[consuming.ISOLATION_LEVEL].upper()]


def fetch_rules(config: Config, *, own_ports: bool) -> FetchRules:
    """`own_ports`: the consumer has made its connections itself, so it knows their limit on a received message."""
    isolation = isolation_of(config)
    response_bytes = min(_RESPONSE_BYTES, config[consuming.FETCH_MAX_BYTES])
    return FetchRules(
        settings=pb.FetchSettings(
            isolation_level=ISOLATION[isolation],
            bytes_min=max(1, min(config[consuming.FETCH_MIN_BYTES], response_bytes)),
            wait_ms_max=config[consuming.FETCH_MAX_WAIT_MS],
            response_bytes_max=response_bytes,
            receive_bytes_max=RECEIVE_BYTES_MAX if own_ports else _DEFAULT_RECEIVE_BYTES,
        ),
        partition_bytes_max=config[consuming.MAX_PARTITION_FETCH_BYTES],
        buffer_bytes=config[consuming.FETCH_MAX_BYTES],
        read_committed=isolation is IsolationLevel.READ_COMMITTED,
        check_crcs=config[consuming.CHECK_CRCS],
        reset=config[consuming.AUTO_OFFSET_RESET],
    )
