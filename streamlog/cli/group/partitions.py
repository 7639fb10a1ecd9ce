"""Options for partitions of a group: `--topic orders`, `--topic orders:0,1`, `--topic 'orders-.*'`, or all topics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import click

from streamlog.cli.common.nouns import matching_topics
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.model import PartitionId, TopicPartition

Command = TypeVar("Command", bound=Callable[..., object])

_TOPIC: Final = re.compile(r"(?P<topic>[^:]+)(:(?P<partitions>[0-9]{1,9}(,[0-9]{1,9})*))?")


def topics_option(command: Command) -> Command:
    """The command gets `topics`, for `matched`, then `parsed` or `chosen_partitions`."""
    return click.option(
        "--topic",
        "topics",
        metavar="TOPIC[:0,1]",
        multiple=True,
        callback=lambda _context, _parameter, value: _checked(value),
        help="This topic, or these partitions of it; a regular expression: of all that it matches. Can be repeated.",
    )(command)


def _checked(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if _TOPIC.fullmatch(text) is None:
            raise click.BadParameter(f"{text!r}: must be TOPIC, or TOPIC:0,1.")
    return texts


async def matched(admin: AsyncAdmin, texts: Iterable[str]) -> list[str]:
    """With each regular expression replaced by the topics that it matches. Errors as `matching_topics`."""
    found = []
    for text in texts:
        expression, colon, partitions = text.partition(":")
        found += [f"{topic}{colon}{partitions}" for topic in await matching_topics(admin, [expression])]
    return found


def parsed(text: str) -> tuple[str, list[PartitionId] | None]:
    """Topic, and partitions; None: all of them."""
    match = _TOPIC.fullmatch(text)
    assert match is not None, "checked"
    numbers = match["partitions"]
    return match["topic"], None if numbers is None else [PartitionId(int(one)) for one in numbers.split(",")]


def chosen_partitions(topics: Iterable[str], known: Iterable[TopicPartition]) -> list[TopicPartition]:
    """In the order of the options; without numbers, all known partitions of the topic."""
    found: dict[TopicPartition, None] = {}
    for text in topics:
        topic, numbers = parsed(text)
        if numbers is None:
            found.update(dict.fromkeys(one for one in sorted(known) if one.topic == topic))
        else:
            found.update(dict.fromkeys(TopicPartition(topic, number) for number in numbers))
    return list(found)


def one_group(name: str | None, flag_name: str | None) -> str:
    """GROUP or --group GROUP."""
    if name and flag_name and name != flag_name:
        raise click.UsageError(f"Two groups are given, {name} and {flag_name}: give one.")
    if not (name or flag_name):
        raise click.UsageError("Give a group: GROUP, or --group GROUP.")
    return name or flag_name or ""
