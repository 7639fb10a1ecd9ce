"""What text each kind of value takes: nothing but what it says, and never an error other than ValueError."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.config.addresses import AddressKind, ListenerKind, VoterKind, parse_address
from streamlog.config.kinds import INT64_MAX, Boolean, ListOf, OneOf, Real, Text, ValueKind, count, long
from streamlog.config.offset_reset import AutoOffsetReset, AutoOffsetResetKind, parse_duration_ms

WORDS = ListOf(OneOf(("delete", "compact")), items_min=1)
KINDS: list[ValueKind[Any]] = [
    Boolean(),
    count(1, 100),
    long(-1),
    Real(0.0, 1.0),
    Text(),
    Text(multiline=True, may_be_empty=True),
    OneOf(("all", "1", "0"), {"-1": "all"}),
    WORDS,
    ListOf(Text(), separator=";"),
    ListOf(AddressKind()),
    ListenerKind(),
    ListenerKind(advertised=True),
    VoterKind(),
    AutoOffsetResetKind(),
]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Boolean(), " TRUE ", True),
        (Boolean(), "false", False),
        (count(1, 100), " 007 ", 7),
        (count(1, 100), "+100", 100),
        (long(-1), str(INT64_MAX), INT64_MAX),
        (long(-1), "-1", -1),
        (Real(0.0, 1.0), ".5", 0.5),
        (Real(0.0, 1.0), "1e-1", 0.1),
        (Text(), "  a b ", "a b"),
        (OneOf(("all", "1"), {"-1": "all"}), "-1", "all"),
        (WORDS, " compact , delete", ("compact", "delete")),
        (ListOf(Text(), separator=";"), "User:CN=a,O=b;User:x", ("User:CN=a,O=b", "User:x")),
        (ListOf(Text()), " ", ()),
    ],
)
def test_takes(kind: ValueKind[Any], text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Boolean(), "yes", "must be true or false"),
        (count(1, 100), "0", "must be in 1..100"),
        (count(1, 100), "101", "must be in 1..100"),
        (count(1, 100), "1_0", "must be a whole number"),
        (count(1, 100), "1.0", "must be a whole number"),
        (count(1, 100), "٣", "must be a whole number"),
        (count(1, 100), "9" * 5_000, "must be a whole number"),
        (long(0), str(INT64_MAX + 1), f"must be in 0..{INT64_MAX}"),
        (Real(0.0, 1.0), "nan", "must be a number"),
        (Real(0.0, 1.0), "inf", "must be a number"),
        (Real(0.0, 1.0), "1e999", "must be in 0..1"),
        (Text(), "", "must not be empty"),
        (Text(), "a\0b", "must not contain control characters"),
        (Text(), "a\nb", "must not contain control characters"),
        (Text(3), "abcd", "must have at most 3 characters, has 4"),
        (OneOf(("a", "b")), "A", "must be one of a, b"),
        (WORDS, "", "must not be empty"),
        (WORDS, "delete,", "must not have an empty item"),
        (WORDS, "delete,delete", "delete is listed twice"),
        (WORDS, "delete,remove", "item 'remove': must be one of delete, compact"),
        (ListOf(Text(), items_max=2), "a,b,c", "must have at most 2 items"),
    ],
)
def test_refuses(kind: ValueKind[Any], text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        kind.parse(text)


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "every", "loopback"),
        [
            ("127.0.0.1:9092", False, True),
            ("127.255.0.1:1", False, True),
            ("[::1]:9092", False, True),
            ("localhost:9092", False, True),
            ("LocalHost.:9092", False, True),
            ("10.0.0.1:9092", False, False),
            ("node-1.example.com:65535", False, False),
            ("0.0.0.0:9092", True, False),
            ("[::]:9092", True, False),
            (":9092", True, False),
            # Not the loopback address, whatever it looks like.
            ("localhost.example.com:9092", False, False),
            ("127.0.0.1.example.com:9092", False, False),
        ],
    )
    def test_who_can_see_it(self, text: str, every: bool, loopback: bool) -> None:
        address = parse_address(text, may_be_wildcard=True)
        assert (address.is_wildcard, address.loopback) == (every, loopback)
        assert str(address) == text

    @pytest.mark.parametrize("text", ["", "h", "h:", "h:0", "h:65536", "h:-1", "h:9092x", "::1:9092", "[h]:1", "a b:1"])
    def test_what_is_none(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            parse_address(text)

    def test_a_listener_may_leave_host_and_port_open_and_what_is_advertised_may_not(self) -> None:
        assert str(ListenerKind().parse("plaintext://:0")) == "PLAINTEXT://:0"
        for text in ("PLAINTEXT://h:0", "PLAINTEXT://:9092", "SSL://0.0.0.0:9092", "SASL_SSL://h:9092", "h:9092"):
            with pytest.raises(ValueError, match=r"must be|must name a host|is not a protocol of listeners"):
                ListenerKind(advertised=True).parse(text)

    @pytest.mark.parametrize("text", ["h:9092", "@h:9092", "-1@h:9092", "2147483648@h:9092", "1@:9092", "1@h"])
    def test_what_is_no_voter(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"must be|must name a host"):
            VoterKind().parse(text)


class TestOffsetReset:
    @pytest.mark.parametrize(
        ("text", "ms"),
        [("PT1H", 3_600_000), ("P1DT2H3M4.5S", 93_784_500), ("pt0.0019s", 1), ("P0D", 0), ("PT1M", 60_000)],
    )
    def test_duration(self, text: str, ms: int) -> None:
        assert parse_duration_ms(text) == ms

    @pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1H", "PT-1H", "-PT1H", "PT1H ", "P999999999999D"])
    def test_no_duration(self, text: str) -> None:
        with pytest.raises(ValueError, match="duration"):
            parse_duration_ms(text)

    def test_strategies(self) -> None:
        kind = AutoOffsetResetKind()
        assert kind.parse("earliest") == AutoOffsetReset("earliest")
        assert kind.parse("by_duration:PT1.5S") == AutoOffsetReset("by_duration", 1_500)
        for text in ("smallest", "earliest:PT1H", "by_duration", "EARLIEST"):
            with pytest.raises(ValueError, match="must be"):
                kind.parse(text)


@given(
    st.sampled_from(KINDS), st.text(alphabet=st.characters(), max_size=40) | st.from_regex(r"[a-z0-9:/@.,;\[\]-]{0,30}")
)
def test_any_text_gives_a_value_that_can_be_written_again_or_a_reason(kind: ValueKind[Any], text: str) -> None:
    try:
        value = kind.parse(text)
    except ValueError:
        return
    assert kind.parse(kind.format(value)) == value
