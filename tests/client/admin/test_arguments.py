"""What the admin client refuses before it sends anything: what is no argument of its method."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from streamlog.client import Admin, AsyncAdmin
from streamlog.errors import InvalidRequestError

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda admin: admin.delete_topics("xyz"), "names"),
        (lambda admin: admin.delete_topics(topic_ids=b"0123456789abcdef"), "topic_ids"),
        (lambda admin: admin.describe_topics("pt"), "names"),
        (lambda admin: admin.describe_groups("gg"), "groups"),
        (lambda admin: admin.delete_groups("gg"), "groups"),
        (lambda admin: admin.describe_transactions("tt"), "transactional_ids"),
        (lambda admin: admin.find_hanging_transactions("tt"), "topics"),
        (lambda admin: admin.elect_leaders("t-0"), "partitions"),
        (lambda admin: admin.describe_log_dirs(1), "node_ids"),
    ],
)
def test_a_text_is_no_list_of_names(call: Callable[[Any], Any], field: str) -> None:
    async def scenario() -> None:
        async with AsyncAdmin(bootstrap_servers=NOWHERE) as admin:
            with pytest.raises(InvalidRequestError, match=f"^{field} must be a list, not ") as raised:
                await call(admin)
            assert raised.value.details["field"] == field

    asyncio.run(scenario())


def test_the_synchronous_client_refuses_it_too() -> None:
    with Admin(bootstrap_servers=NOWHERE) as admin:
        with pytest.raises(InvalidRequestError, match=r"^names must be a list, not 'xyz' \(str\)$"):
            admin.delete_topics("xyz")
        with pytest.raises(TypeError, match=r"^create_topic\(\): got an unexpected keyword argument 'config'$"):
            admin.create_topic("t", config={})  # type: ignore[call-arg]
