"""What a protected record still shows: nothing that is hidden or masked, in no form."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.client import ConsumerRecord
from streamlog.console.access.roles import UserRole
from streamlog.console.access.values import HIDDEN, MASKED, Protection, ValueRule, protection
from streamlog.model import Offset

RULES = (
    ValueRule(topics="pay.*", roles=("viewer",), hide=("value", "headers")),
    ValueRule(topics="pay.cards", roles=("viewer", "operator"), hide=("key",), mask=("card.number",)),
)


def record(value: bytes | None, key: bytes | None = b"k") -> ConsumerRecord:
    return ConsumerRecord("t", 0, Offset(0), 0, key, value, (("h", b"secret"), ("n", None)))


def masked(document: object, *paths: str) -> object:
    value = Protection(mask=tuple(tuple(path.split(".")) for path in paths)).record(
        record(json.dumps(document).encode())
    )
    assert value.value is not None
    return HIDDEN if value.value == HIDDEN.encode() else json.loads(value.value)


def test_all_matching_rules_apply_and_no_other() -> None:
    found = protection(RULES, "pay.cards", UserRole.VIEWER)
    assert (found.hide, found.mask) == ({"value", "headers", "key"}, (("card", "number"),))
    assert protection(RULES, "pay.cards", UserRole.OPERATOR) == Protection(frozenset({"key"}), (("card", "number"),))
    assert not protection(RULES, "pay.cards", UserRole.ADMIN)
    assert not protection(RULES, "orders", UserRole.VIEWER)
    assert not protection(RULES, "PAY.cards", UserRole.VIEWER), "names of topics are case-sensitive"


def test_hidden_parts_are_replaced_and_null_stays() -> None:
    found = Protection(frozenset({"key", "value", "headers"})).record(record(b"x"))
    assert (found.key, found.value, found.headers) == (b"(hidden)", b"(hidden)", (("h", b"(hidden)"), ("n", None)))
    assert Protection(frozenset({"key", "value"})).record(record(None, None))[4:6] == (None, None)
    untouched = record(b"x")
    assert Protection().record(untouched) is untouched


@pytest.mark.parametrize(
    ("document", "paths", "shown"),
    [
        ({"a": 1, "b": 2}, ["a"], {"a": MASKED, "b": 2}),
        ({"a": {"b": 1, "c": 2}}, ["a.b"], {"a": {"b": MASKED, "c": 2}}),
        ({"a": {"b": 1}}, ["a"], {"a": MASKED}),
        ({"a": [{"b": 1}, {"b": 2}]}, ["a.b"], {"a": [{"b": MASKED}, {"b": MASKED}]}),
        ([{"b": 1}], ["b"], [{"b": MASKED}]),
        ({"a": [[{"b": 1}]]}, ["a.b"], {"a": [[{"b": MASKED}]]}),
        ({"a": {"x": {"b": 1}}}, ["a.*.b"], {"a": {"x": {"b": MASKED}}}),
        ({"a": [{"b": 1}]}, ["a.*.b"], {"a": [{"b": MASKED}]}),
        ({"a": [1, 2]}, ["a.*"], {"a": [MASKED, MASKED]}),
        ({"a": {"x": 1}}, ["*.x"], {"a": {"x": MASKED}}),
        ({"x": {"y": {"pin": 1}}, "pin": 2}, ["**.pin"], {"x": {"y": {"pin": MASKED}}, "pin": MASKED}),
        ({"x": [{"pin": 1}]}, ["**.pin"], {"x": [{"pin": MASKED}]}),
        ({"a": {"x": {"y": {"b": 1}}}}, ["a.**.b"], {"a": {"x": {"y": {"b": MASKED}}}}),
        ({"a": 1}, ["**"], {"a": MASKED}),
        ({"a": 1}, ["b"], {"a": 1}),
        (5, ["a"], HIDDEN),
        ("text", ["a"], HIDDEN),
        (None, ["a"], HIDDEN),
    ],
)
def test_paths(document: object, paths: list[str], shown: object) -> None:
    assert masked(document, *paths) == shown


@pytest.mark.parametrize(
    "value", [b"card 4711", b"\xff", b'{"a": 1', b"[" * 100_000 + b"]" * 100_000, b'"\\ud800"', b""]
)
def test_what_cannot_be_masked_is_hidden(value: bytes) -> None:
    assert Protection(mask=(("a",),)).record(record(value)).value == b"(hidden)"


def test_a_field_that_is_there_twice_is_masked_twice() -> None:
    found = Protection(mask=(("a",),)).record(record(b'{"a": "secret1", "a": "secret2"}')).value
    assert found == b'{"a": "***"}'


def test_decoded_documents() -> None:
    protect = Protection(mask=(("a",),))
    assert protect.document({"a": 1, "b": b"x"}) == {"a": MASKED, "b": b"x"}
    assert protect.document("text") == HIDDEN
    assert Protection(frozenset({"value"})).document({"a": 1}) == HIDDEN
    assert Protection().document("text") == "text"


JSON = st.recursive(
    st.integers(0, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abs"), inner, max_size=3),
)


@given(JSON)
def test_a_field_anywhere_is_masked_everywhere(document: object) -> None:
    def fields(of: object) -> list[object]:
        if isinstance(of, list):
            return [found for one in of for found in fields(one)]
        if isinstance(of, dict):
            return [found for name, one in of.items() for found in ([one] if name == "s" else fields(one))]
        return []

    assert all(one == MASKED for one in fields(masked(document, "**.s")))
