"""What the admin client refuses before it sends anything: what is no argument of its method."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, get_args

import numpy
import pytest
from msgspec import Struct

from streamlog.client import Admin, AsyncAdmin
from streamlog.client.admin import arguments
from streamlog.client.admin.arguments import checked
from streamlog.client.admin.values import ConfigResource, NewTopic
from streamlog.client.consumer.offset_finder import Bound
from streamlog.errors import InvalidRequestError
from streamlog.model import PartitionId, TopicPartition

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
            with pytest.raises(InvalidRequestError, match=f"^{field} must be a list(?: or None)?, not ") as raised:
                await call(admin)
            assert raised.value.details["field"] == field

    asyncio.run(scenario())


T0 = TopicPartition("t", PartitionId(0))
BAD: Any = 5
T = NewTopic("t")
TOPIC = ConfigResource.topic("t")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda admin: admin.create_topic(5), "name must be a str, not 5 (int)"),
        (lambda admin: admin.create_topic(None), "name must be a str, not None (NoneType)"),
        (lambda admin: admin.create_topic("t", partitions="3"), "partitions must be an integer or None, not '3' (str)"),
        (lambda admin: admin.create_topic("t", True), "partitions must be an integer or None, not True (bool)"),
        (lambda admin: admin.create_topic("t", configs={"a": 1}), "configs['a'] must be a str, not 1 (int)"),
        (lambda admin: admin.create_topic("t", configs={1: "a"}), "configs: a key must be a str, not 1 (int)"),
        (lambda admin: admin.create_topic("t", configs=["a"]), "configs must be a dict or None, not ['a'] (list)"),
        (lambda admin: admin.create_topics(["t"]), "topics[0] must be a NewTopic, not 't' (str)"),
        (
            lambda admin: admin.create_topics([NewTopic("t"), NewTopic(BAD)]),
            "topics[1].name must be a str, not 5 (int)",
        ),
        (lambda admin: admin.create_topics([T], validate_only="no"), "validate_only must be True or False, not"),
        (lambda admin: admin.delete_topics([None]), "names[0] must be a str, not None (NoneType)"),
        (lambda admin: admin.grow_topic("t", "5"), "partition_count must be an integer, not '5' (str)"),
        (lambda admin: admin.unregister_node("1"), "node_id must be an integer, not '1' (str)"),
        (lambda admin: admin.describe_log_dirs([1.5]), "node_ids[0] must be an integer, not 1.5 (float)"),
        (lambda admin: admin.alter_config("t", []), "resource must be a ConfigResource, not 't' (str)"),
        (lambda admin: admin.alter_config(TOPIC, {"a": "1"}), "changes[0] must be a ConfigChange, not 'a' (str)"),
        (lambda admin: admin.list_offsets(["t"]), "places must be a dict, not ['t'] (list)"),
        (
            lambda admin: admin.list_offsets({T0: 5}),
            "places[TopicPartition(topic='t', partition=0)] must be a Bound or ",
        ),
        (lambda admin: admin.list_offsets({}, timeout_s="5"), "timeout_s must be a number or None, not '5' (str)"),
        (
            lambda admin: admin.delete_records({"t": 5}),
            "before: a key must be a TopicPartition or (topic, number), not 't' (str)",
        ),
        (lambda admin: admin.elect_leaders([("t", "0")]), "partitions[0].partition must be an integer, not '0' (str)"),
        (lambda admin: admin.elect_leaders([T0], kind="unclean"), "kind must be an ElectionType, not 'unclean' (str)"),
        (lambda admin: admin.describe_acls("t"), "wanted must be an AclFilter, not 't' (str)"),
        (lambda admin: admin.create_user("alice", b"secret"), "password must be a str or None, not bytes"),
        (lambda admin: admin.create_topic("t", configs={"a": b"secret"}), "configs['a'] must be a str, not bytes"),
        (lambda admin: admin.create_topic(5, "3"), "name must be a str, not 5 (int)"),
    ],
)
def test_what_is_of_another_type_is_named(call: Callable[[Any], Any], message: str) -> None:
    async def scenario() -> None:
        async with AsyncAdmin(bootstrap_servers=NOWHERE) as admin:
            with pytest.raises(InvalidRequestError, match=f"^{re.escape(message)}") as raised:
                await call(admin)
            assert message.startswith(str(raised.value.details["field"]))

    asyncio.run(scenario())


class Integer:
    """As of numpy."""

    def __index__(self) -> int:
        return 3


def test_what_does_for_a_type_is_taken_as_one() -> None:
    @checked
    class Client:
        async def given(
            self,
            count: int,
            at: Iterable[TopicPartition],
            offsets: Mapping[TopicPartition, int | Bound],
            topic: NewTopic,
            timeout_s: float | None = None,
            dry_run: bool = False,
        ) -> tuple[object, ...]:
            return count, at, offsets, topic, timeout_s, dry_run

    async def scenario() -> None:
        three: Any = Integer()
        pair: Any = ("t", 0)
        one: Any = 1
        unchanged = NewTopic("t", 3)
        count, at, offsets, topic, timeout_s, dry_run = await Client().given(
            three, iter([pair, T0]), {pair: three, T0: Bound.LATEST}, unchanged, timeout_s=5, dry_run=one
        )
        assert type(count) is int
        assert (count, at, offsets) == (3, [T0, T0], {T0: Bound.LATEST})
        assert topic is unchanged
        assert (timeout_s, dry_run) == (5.0, True)
        five: Any = Decimal(5)
        true: Any = numpy.bool_(True)
        timeout_s, dry_run = (await Client().given(1, [], {}, unchanged, timeout_s=five, dry_run=true))[4:]
        assert (timeout_s, dry_run, type(dry_run)) == (5.0, True, bool)
        changed = (await Client().given(1, [], {}, NewTopic("t", three)))[3]
        assert changed == NewTopic("t", 3)

    asyncio.run(scenario())


def test_the_annotations_of_all_methods_can_be_read() -> None:
    """Also those of what is given: a name that is imported for mypy alone would fail at a call."""
    seen: list[Any] = []
    found: list[Any] = [
        arguments._hints(inspect.unwrap(method))
        for name, method in inspect.getmembers(AsyncAdmin, inspect.iscoroutinefunction)
        if not name.startswith("_")
    ]
    while found:
        one = found.pop()
        if one in seen:
            continue
        seen.append(one)
        found += one.values() if isinstance(one, dict) else get_args(one)
        if isinstance(one, type) and issubclass(one, Struct):
            found.append(arguments._hints(one))
    assert NewTopic in seen


def test_the_synchronous_client_refuses_it_too() -> None:
    with Admin(bootstrap_servers=NOWHERE) as admin:
        with pytest.raises(InvalidRequestError, match=r"^names must be a list, not 'xyz' \(str\)$"):
            admin.delete_topics("xyz")
        with pytest.raises(TypeError, match=r"^create_topic\(\): got an unexpected keyword argument 'config'$"):
            admin.create_topic("t", config={})  # type: ignore[call-arg]
