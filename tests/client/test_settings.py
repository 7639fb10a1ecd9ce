"""How settings are given to a client."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.client import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer
from streamlog.errors import InvalidConfigError


@pytest.mark.parametrize("client", [Admin, AsyncConsumer, AsyncProducer, Consumer, Producer])
def test_a_topic_or_an_address_where_settings_belong_is_named(client: Any) -> None:
    """As in clients of other systems, whose first arguments are topics."""
    with pytest.raises(InvalidConfigError, match=r"a mapping or named arguments, not 'orders': .* subscribe\(\)"):
        client("orders", bootstrap_servers="localhost:1")
