"""How settings are given to a client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamlog.client import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from streamlog.client.settings import loaded
from streamlog.config import load_consumer
from streamlog.errors import InvalidConfigError


@pytest.mark.parametrize("client", [Admin, AsyncConsumer, AsyncProducer, Consumer, Producer])
def test_a_topic_or_an_address_where_settings_belong_is_named(client: Any) -> None:
    """As in clients of other systems, whose first arguments are topics."""
    with pytest.raises(InvalidConfigError, match=r"a mapping or named arguments, not 'orders': .* subscribe\(\)"):
        client("orders", bootstrap_servers="localhost:1")


@pytest.mark.parametrize("client", [Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer])
def test_what_is_no_text_is_no_name(client: Any) -> None:
    """Its text would be taken: group 5, or b'billing'."""
    for value, shown in ((5, r"5 \(int\)"), (b"billing", r"b'billing' \(bytes\)"), (["a"], r"\['a'\] \(list\)")):
        with pytest.raises(InvalidConfigError, match=rf"^client\.id must be a str, not {shown}$") as raised:
            client(client_id=value)
        assert raised.value.details["field"] == "client.id"
    with pytest.raises(InvalidConfigError, match=r"^sasl\.password must be a str, not int\n"):
        client({"sasl.password": 1234567})


def test_all_that_is_no_text_is_named() -> None:
    with pytest.raises(InvalidConfigError, match=r"(?s)^group\.id must .*\nclient\.rack must be a str, not 7 \(int\)$"):
        Consumer(group_id=5, client_rack=7)


def test_what_other_settings_lack_is_named_too() -> None:
    with pytest.raises(InvalidConfigError, match=r"(?s)^client\.id must be a str.*\n.*linger\.ms='-1': must be in"):
        AsyncProducer(client_id=5, linger_ms=-1)


@pytest.mark.parametrize("client", [Admin, AsyncConsumer, Producer])
def test_no_addresses_are_none(client: Any) -> None:
    """A variable that is not set, mostly. Of other settings, None is the default."""
    with pytest.raises(InvalidConfigError, match=r"must be addresses, not None: leave it out for 127\.0\.0\.1:9092$"):
        client(bootstrap_servers=None, client_id=None)


def test_what_does_for_a_text() -> None:
    loaded(load_consumer, {"ssl.truststore.location": Path("ca.pem"), "group.id": None, "linger.ms": None}, {})
