"""What the page of quotas shows, and which changes of a form it makes."""

from __future__ import annotations

import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from streamlog.access.quotas import CONNECTION_CREATION_RATE, KEYS, QuotaEntity
from streamlog.console.pages.quotas import COLUMNS, NAME_SHOWN, Part, changes_of, entity_of, quota_rows
from streamlog.console.widgets.table_view import cells
from streamlog.errors import InvalidRequestError

ANY, DEFAULT = Part("any", "ignored"), Part("default", "ignored")
ALICE = QuotaEntity(user="alice")


@pytest.mark.parametrize(
    ("user", "client_id", "expected"),
    [
        (Part("named", " alice "), ANY, ALICE),
        (DEFAULT, ANY, QuotaEntity(user="")),
        (ANY, DEFAULT, QuotaEntity(client_id="")),
        (Part("named", "alice"), Part("named", "reports"), QuotaEntity(user="alice", client_id="reports")),
    ],
)
def test_whose_limits_a_form_names(user: Part, client_id: Part, expected: QuotaEntity) -> None:
    assert entity_of(user, client_id, ANY) == expected


@pytest.mark.parametrize(
    ("user", "client_id", "said"),
    [
        (ANY, ANY, "Give whose limit it is"),
        (Part("named", " "), ANY, "Give the user's name."),
        (ANY, Part("named", ""), "Give the client id's name."),
    ],
)
def test_a_form_that_names_nothing_is_refused(user: Part, client_id: Part, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        entity_of(user, client_id, ANY)


def test_a_name_that_could_never_apply_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="at most 249 characters"):
        entity_of(ANY, Part("named", "x" * 250), ANY)


def test_an_address_is_given_alone_in_any_form() -> None:
    assert entity_of(ANY, ANY, Part("named", "::FFFF:10.0.0.7")) == QuotaEntity(ip="10.0.0.7")
    assert entity_of(ANY, ANY, DEFAULT) == QuotaEntity(ip="")
    for address, user in (("node1", ANY), ("10.0.0.7", DEFAULT)):
        with pytest.raises(InvalidRequestError):
            entity_of(user, ANY, Part("named", address))
    [row] = quota_rows({QuotaEntity(ip=""): {CONNECTION_CREATION_RATE: 20.0}})
    assert (cells(row, COLUMNS)["ip"], cells(row, COLUMNS)["what"]) == (
        "(default)",
        "connections from an address, a second",
    )


def test_only_what_differs_is_changed() -> None:
    before = {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0, "of_a_newer_release": 1.0}
    wanted = {"producer_byte_rate": 5, "consumer_byte_rate": None, "controller_mutation_rate": 0.5}
    assert changes_of(ALICE, before, wanted) == {"consumer_byte_rate": None, "controller_mutation_rate": 0.5}


@pytest.mark.parametrize("value", [0, -1, 1.5, float("nan")])
def test_values_that_no_limit_has_are_refused(value: float) -> None:
    with pytest.raises(InvalidRequestError, match="producer_byte_rate of user alice must be a"):
        changes_of(ALICE, {}, {"producer_byte_rate": value})


def test_each_limit_is_a_row_whatever_its_name() -> None:
    every = dict.fromkeys([*KEYS, "of_a_newer_release"], 1_500_000.0)
    rows = quota_rows({ALICE: every, QuotaEntity(client_id=""): {"consumer_byte_rate": 0.25}})
    shown = [cells(row, COLUMNS) for row in rows]
    assert {one["limit"] for one in shown} == every.keys()
    assert {(one["user"], one["client_id"]) for one in shown} == {("alice", "any"), ("any", "(default)")}
    assert {one["value"] for one in shown} == {"1,500,000", "0.25"}
    assert all(one["what"] for one in shown if one["limit"] in KEYS)
    assert len({row["key"] for row in rows}) == len(rows)


def test_a_long_name_is_cut() -> None:
    [row] = quota_rows({QuotaEntity(user="x" * 900): {"consumer_byte_rate": 1}})
    assert cells(row, COLUMNS)["user"] == "x" * (NAME_SHOWN - 1) + "…"
