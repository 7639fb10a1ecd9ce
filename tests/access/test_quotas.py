"""Which limit applies: Kafka's eight levels, one by one."""

from __future__ import annotations

import math

import pytest

from streamlog.access.addresses import address_of
from streamlog.access.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
    QuotaFilter,
    QuotaHolder,
    QuotaMatch,
    check_entity,
    check_limit,
    limit_of,
)
from streamlog.errors import InvalidRequestError

ALICE, ETL = "alice", "etl"
BOTH, OF_USER, OF_CLIENT = QuotaHolder(ALICE, ETL), QuotaHolder(ALICE, None), QuotaHolder(None, ETL)
LEVELS = [
    (QuotaEntity(user=ALICE, client_id=ETL), BOTH),
    (QuotaEntity(user=ALICE, client_id=DEFAULT), BOTH),
    (QuotaEntity(user=ALICE), OF_USER),
    (QuotaEntity(user=DEFAULT, client_id=ETL), BOTH),
    (QuotaEntity(user=DEFAULT, client_id=DEFAULT), BOTH),
    (QuotaEntity(user=DEFAULT), OF_USER),
    (QuotaEntity(client_id=ETL), OF_CLIENT),
    (QuotaEntity(client_id=DEFAULT), OF_CLIENT),
]
OTHERS = [QuotaEntity(user="bob", client_id=ETL), QuotaEntity(user="bob"), QuotaEntity(client_id="other")]


@pytest.mark.parametrize("level", range(8))
def test_each_level_applies_where_those_before_it_have_no_limit(level: int) -> None:
    quotas = {entity: {PRODUCER_BYTE_RATE: 100.0 + number} for number, (entity, _) in enumerate(LEVELS)}
    quotas.update({entity: {PRODUCER_BYTE_RATE: 1.0} for entity in OTHERS})
    for entity, _ in LEVELS[:level]:
        quotas[entity] = {CONSUMER_BYTE_RATE: 5.0}  # of another key, which does not count
    assert limit_of(quotas, PRODUCER_BYTE_RATE, ALICE, ETL) == (100.0 + level, LEVELS[level][1])


def test_without_a_limit_of_the_key_there_is_none() -> None:
    quotas = {QuotaEntity(user=ALICE): {CONSUMER_BYTE_RATE: 5.0}, OTHERS[0]: {PRODUCER_BYTE_RATE: 1.0}}
    assert limit_of(quotas, PRODUCER_BYTE_RATE, ALICE, ETL) is None
    assert limit_of({}, PRODUCER_BYTE_RATE, ALICE, ETL) is None


def test_a_client_without_an_id_has_the_default_limit() -> None:
    quotas = {QuotaEntity(client_id=DEFAULT): {PRODUCER_BYTE_RATE: 5.0}}
    assert limit_of(quotas, PRODUCER_BYTE_RATE, ALICE, "") == (5.0, QuotaHolder(None, ""))


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (QuotaFilter(), 8),
        (QuotaFilter(user=QuotaMatch()), 6),
        (QuotaFilter(user=QuotaMatch(), strict=True), 2),
        (QuotaFilter(user=QuotaMatch(ALICE)), 3),
        (QuotaFilter(user=QuotaMatch(DEFAULT)), 3),
        (QuotaFilter(user=QuotaMatch(DEFAULT), client_id=QuotaMatch(ETL)), 1),
        (QuotaFilter(client_id=QuotaMatch(ETL), strict=True), 1),
        (QuotaFilter(strict=True), 0),
    ],
    ids=str,
)
def test_filters(wanted: QuotaFilter, count: int) -> None:
    assert sum(wanted.matches(entity) for entity, _ in LEVELS) == count


def test_entities_have_one_order_and_names_for_people() -> None:
    entities = [entity for entity, _ in LEVELS]
    assert sorted(entities) == sorted(entities, reverse=True)[::-1]
    assert str(LEVELS[1][0]) == "user alice, default client id"
    assert str(QuotaEntity(user="a\nb")) == "user a\\nb"


@pytest.mark.parametrize(
    "entity",
    [
        QuotaEntity(),
        QuotaEntity(user="x" * 901),
        QuotaEntity(client_id="x" * 250),
        QuotaEntity(user="a\nb"),
        QuotaEntity(ip="10.0.0.7", user="alice"),
        QuotaEntity(ip="node1"),
        QuotaEntity(ip="10.0.0.0/8"),
        QuotaEntity(ip="2001:DB8::7"),
        QuotaEntity(ip="::ffff:10.0.0.7"),
        QuotaEntity(ip="fe80::7%eth0"),
    ],
)
def test_entities_that_could_never_apply_are_refused(entity: QuotaEntity) -> None:
    with pytest.raises(InvalidRequestError):
        check_entity(entity)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:DB8:0::7", "2001:db8::7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("node1", None),
        ("10.0.0.7:9092", None),
        ("fe80::7%eth0", None),
        ("", None),
    ],
)
def test_addresses_have_one_form(text: str, address: str | None) -> None:
    assert address_of(text) == address
    if address is not None:
        check_entity(QuotaEntity(ip=address))


def test_an_address_has_limits_of_its_own_kind() -> None:
    of_address = QuotaEntity(ip=DEFAULT)
    check_entity(of_address)
    check_limit(of_address, CONNECTION_CREATION_RATE, 0.5)
    with pytest.raises(InvalidRequestError, match="not a quota of default address: give one of connection"):
        check_limit(of_address, PRODUCER_BYTE_RATE, 5.0)
    with pytest.raises(InvalidRequestError, match="is not a quota of user alice"):
        check_limit(QuotaEntity(user=ALICE), CONNECTION_CREATION_RATE, 5.0)
    assert QuotaFilter(ip=QuotaMatch()).matches(of_address)
    assert not QuotaFilter(ip=QuotaMatch("10.0.0.7")).matches(of_address)
    assert not QuotaFilter(user=QuotaMatch(), strict=True).matches(of_address)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 1e300, 1.5])
def test_values_that_are_no_rates_are_refused(value: float) -> None:
    with pytest.raises(InvalidRequestError):
        check_limit(LEVELS[0][0], PRODUCER_BYTE_RATE, value)


@pytest.mark.parametrize("value", [1e-9, 5e-324])
def test_rates_of_which_a_node_would_have_no_share_are_refused(value: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"must be a number from 0\.001 to 9007199254740992, not"):
        check_limit(LEVELS[0][0], CONTROLLER_MUTATION_RATE, value)
    check_limit(LEVELS[0][0], CONTROLLER_MUTATION_RATE, 0.001)


def test_unknown_keys_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidRequestError, match="give one of producer_byte_rate, consumer_byte_rate, controller"):
        check_limit(LEVELS[0][0], "leader_byte_rate", None)
