"""Decisions on client quotas; that they survive a snapshot."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from streamlog.access.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
)
from streamlog.errors import FeatureUpdateFailedError, InvalidRequestError
from streamlog.metadata.access import quota_changes
from streamlog.metadata.access.quota_changes import AlterClientQuotas, QuotaChange
from streamlog.metadata.controller import decide
from streamlog.metadata.image.snapshot import decode_snapshot, encode_snapshot
from streamlog.metadata.records import MetadataVersion
from tests.metadata.rig import Rig

ALICE, ALL = QuotaEntity(user="alice"), QuotaEntity(user=DEFAULT, client_id=DEFAULT)


def change(entity: QuotaEntity, value: float | None, key: str = PRODUCER_BYTE_RATE) -> QuotaChange:
    return QuotaChange(entity=entity, key=key, value=value)


def limits(rig: Rig) -> dict[QuotaEntity, dict[str, float]]:
    return {entity: dict(of_one.items()) for entity, of_one in rig.image.quotas.items()}


def test_limits_are_set_changed_and_removed() -> None:
    rig = Rig()
    rig.do(AlterClientQuotas(changes=(change(ALICE, 5.0), change(ALL, 7.0), change(ALICE, 9.0, CONSUMER_BYTE_RATE))))
    assert limits(rig) == {ALICE: {CONSUMER_BYTE_RATE: 9.0, PRODUCER_BYTE_RATE: 5.0}, ALL: {PRODUCER_BYTE_RATE: 7.0}}
    before = rig.image
    rig.do(AlterClientQuotas(changes=(change(ALICE, 5.0), change(QuotaEntity(user="bob"), None))))
    assert rig.image.quotas is before.quotas, "nothing has changed"
    rig.do(AlterClientQuotas(changes=(change(ALICE, 6.0),), validate_only=True))
    assert rig.image.quotas is before.quotas
    rig.do(AlterClientQuotas(changes=(change(ALL, None), change(ALICE, 6.0))))
    assert limits(rig) == {ALICE: {CONSUMER_BYTE_RATE: 9.0, PRODUCER_BYTE_RATE: 6.0}}


def test_they_survive_a_snapshot() -> None:
    rig = Rig()
    rig.do(AlterClientQuotas(changes=(change(ALICE, 5.0), change(ALL, 7.0))))
    loaded = decode_snapshot([b"".join(encode_snapshot(rig.image))])
    assert dict(loaded.quotas.items()).keys() == {ALICE, ALL}
    assert list(encode_snapshot(loaded)) == list(encode_snapshot(rig.image))


@pytest.mark.parametrize(
    "changes",
    [
        (change(QuotaEntity(), 5.0),),
        (change(ALICE, 0.0),),
        (change(ALICE, 5.0, "unknown"),),
        (change(ALICE, 5.0, CONNECTION_CREATION_RATE),),
        (change(QuotaEntity(ip="10.0.0.7"), 5.0),),
        (change(ALICE, 5.0), change(ALICE, 6.0)),
    ],
)
def test_a_request_with_a_wrong_change_is_refused_whole(changes: tuple[QuotaChange, ...]) -> None:
    rig = Rig()
    with pytest.raises(InvalidRequestError):
        rig.do(AlterClientQuotas(changes=(change(ALL, 1.0), *changes)))
    assert limits(rig) == {}


def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_changes, "ENTITIES_MAX", 2)
    rig = Rig()
    rig.do(AlterClientQuotas(changes=(change(ALICE, 5.0), change(ALL, 7.0))))
    with pytest.raises(InvalidRequestError, match="at most 2"):
        rig.do(AlterClientQuotas(changes=(change(QuotaEntity(user="bob"), 5.0),)))
    rig.do(AlterClientQuotas(changes=(change(ALICE, 6.0),)))


def test_they_need_the_metadata_version_of_their_records() -> None:
    rig = Rig()
    old = replace(rig.image, metadata_version=MetadataVersion(4))
    with pytest.raises(FeatureUpdateFailedError, match="streamlogctl cluster upgrade"):
        decide(AlterClientQuotas(changes=(change(ALICE, 5.0),)), old, rig.context)


def test_those_of_addresses_need_a_later_one() -> None:
    rig = Rig()
    of_address = change(QuotaEntity(ip="10.0.0.7"), 5.0, CONNECTION_CREATION_RATE)
    old = replace(rig.image, metadata_version=MetadataVersion(5))
    with pytest.raises(FeatureUpdateFailedError, match=r"quotas of addresses need metadata\.version 6"):
        decide(AlterClientQuotas(changes=(change(ALICE, 5.0), of_address)), old, rig.context)
    decide(AlterClientQuotas(changes=(change(ALICE, 5.0),)), old, rig.context)
    rig.do(AlterClientQuotas(changes=(of_address,)))
    loaded = decode_snapshot([b"".join(encode_snapshot(rig.image))])
    assert dict(loaded.quotas.items()).keys() == {QuotaEntity(ip="10.0.0.7")}
