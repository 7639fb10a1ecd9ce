"""How fast addresses may connect, by the metadata image and the node's settings."""

from __future__ import annotations

from streamlog.access.quotas import CONNECTION_CREATION_RATE, DEFAULT, PRODUCER_BYTE_RATE, QuotaEntity
from streamlog.metadata.convert import encode_batch
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import ClientQuotaRecord, MetadataRecord, MetadataVersionRecord
from streamlog.metadata.view import MetadataView
from streamlog.model import INT32_MAX, RaftIndex
from streamlog.services.quotas.connection_rates import ConnectionRates


def test_an_address_has_its_own_rate_or_that_of_the_default_address() -> None:
    view = MetadataView()
    total = INT32_MAX
    rates = ConnectionRates(view, lambda: total)
    index = 0

    def apply(*records: MetadataRecord) -> None:
        nonlocal index
        index += 1
        view.machine.apply(RaftIndex(index), encode_batch(records))

    def limit(ip: str, value: float | None) -> ClientQuotaRecord:
        return ClientQuotaRecord(entity=QuotaEntity(ip=ip), key=CONNECTION_CREATION_RATE, value=value)

    apply(MetadataVersionRecord(level=METADATA_VERSION_MAX))
    apply(ClientQuotaRecord(entity=QuotaEntity(user=DEFAULT), key=PRODUCER_BYTE_RATE, value=5.0))
    assert not rates.active, "users' limits are not of addresses"
    assert (rates.of("10.0.0.7"), rates.total) == (None, None)
    apply(limit("10.0.0.7", 2.0))
    assert rates.active
    assert (rates.of("10.0.0.7"), rates.of("10.0.0.8")) == (2.0, None)
    apply(limit(DEFAULT, 9.0))
    assert (rates.of("10.0.0.7"), rates.of("10.0.0.8")) == (2.0, 9.0)
    apply(limit(DEFAULT, None), limit("10.0.0.7", None))
    assert not rates.active
    total = 15
    assert (rates.active, rates.total) == (True, 15)
