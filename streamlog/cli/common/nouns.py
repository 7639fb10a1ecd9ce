"""Base of all nouns of streamlogctl: groups of verbs, and names as arguments or as flags.

Kafka's tools take names as flags (`--topic orders`); a plain argument (`orders`) is shorter. Both work everywhere, and
several names where it makes sense.
"""

from __future__ import annotations

import difflib
import io
import os
import re
from collections.abc import Callable, Container, Sequence
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Final, TypeVar

import click

from streamlog.errors import InvalidRegularExpressionError, UnknownTopicOrPartitionError
from streamlog.model import INT32_MAX, TOPIC_CHARACTER, PartitionId, TopicPartition

if TYPE_CHECKING:  # most commands start faster without
    from streamlog.client.admin.async_admin import AsyncAdmin

Command = TypeVar("Command", bound=Callable[..., object])

_COMPLETION_TIMEOUT_MS: Final = 1_000
_SHORT_HELP_MAX: Final = 200  # characters
_KAFKAS_VERBS: Final = frozenset({"--create", "--describe", "--list", "--alter", "--delete", "--reset-offsets"})
_DIGITS_MAX: Final = 100  # of a number, with zeros before it
_NAME: Final = re.compile(f"{TOPIC_CHARACTER}*")
_TOPIC_PARTITION: Final = re.compile(r"(?P<topic>.+)[-:](?P<partition>[0-9]{1,9})")


def topics_argument(command: Command) -> Command:
    """NAME... and --topic NAME; the command gets `names` and `flag_names`, for `all_names`."""
    argument = click.argument("names", metavar="[TOPIC]...", nargs=-1, shell_complete=_topics)
    flag = click.option(
        "--topic",
        "flag_names",
        metavar="TOPIC",
        multiple=True,
        shell_complete=_topics,
        help="As TOPIC; can be repeated; or a regular expression.",
    )
    return argument(flag(command))


def new_topics_argument(command: Command) -> Command:
    """As `topics_argument`, of topics that do not exist."""
    argument = click.argument("names", metavar="[TOPIC]...", nargs=-1)
    flag = click.option("--topic", "flag_names", metavar="TOPIC", multiple=True, help="As TOPIC; can be repeated.")
    return argument(flag(command))


def node_argument(command: Command) -> Command:
    """One node, as `node_id`."""
    return click.argument("node_id", metavar="NODE", type=click.IntRange(0, INT32_MAX))(command)


def topic_argument(command: Command) -> Command:
    """One topic: TOPIC or --topic TOPIC; for `one_name`."""
    argument = click.argument("name", metavar="[TOPIC]", required=False, shell_complete=_topics)
    flag = click.option("--topic", "flag_name", metavar="TOPIC", shell_complete=_topics, help="As TOPIC.")
    return argument(flag(command))


def _topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """For shell completion: the topics of the cluster; none where no node answers in time."""
    # Imported here: it is needed for completion only.
    from streamlog.cli.common.session import with_admin
    from streamlog.cli.common.target import ENVIRONMENT, addresses, chosen_target

    given = context.params
    servers = given.get("servers") or addresses(os.environ.get(ENVIRONMENT, ""))
    try:
        target = chosen_target(
            context,
            servers,
            given.get("profile"),
            given.get("command_config"),
            request_timeout_ms=_COMPLETION_TIMEOUT_MS,
        )
        with redirect_stderr(io.StringIO()):  # warnings about settings would be written into the user's line
            found = with_admin(target, lambda admin: admin.list_topics())
    except click.ClickException:
        return []
    return [one.name for one in found if one.name.startswith(incomplete)]


def all_names(names: Sequence[str], flag_names: Sequence[str], *, required: bool = True) -> list[str]:
    """All names, without duplicates. Commas separate names too, as in Kafka's tools; topic names contain none."""
    given = [part.strip() for name in (*names, *flag_names) for part in name.split(",") if part.strip()]
    if required and not given:
        raise click.UsageError("Give a topic: TOPIC, or --topic TOPIC.")
    return list(dict.fromkeys(given))


def is_expression(name: str) -> bool:
    """Whether it has a character that no topic's name can have, so that `a.b` is a name."""
    return _NAME.fullmatch(name) is None


async def matching_topics(admin: AsyncAdmin, names: Sequence[str]) -> list[str]:
    """The names, with each regular expression replaced by the topics that it matches as a whole; internal ones only
    where they are named. UnknownTopicOrPartitionError: an expression matches none; InvalidRegularExpressionError.
    """
    if not any(map(is_expression, names)):
        return list(names)
    known = [one.name for one in await admin.list_topics()]
    found: list[str] = []
    for name in names:
        if not is_expression(name):
            found.append(name)
            continue
        try:
            pattern = re.compile(name)
        except re.error as error:
            raise InvalidRegularExpressionError(f"{name!r} is not a regular expression: {error}") from None
        matching = [topic for topic in known if pattern.fullmatch(topic)]
        if not matching:
            raise UnknownTopicOrPartitionError(f"no topic matches {name!r}")
        found += matching
    return list(dict.fromkeys(found))


async def existing_topics(admin: AsyncAdmin, names: Sequence[str]) -> list[str]:
    """As `matching_topics`; UnknownTopicOrPartitionError for a name too. For calls that pass over what is missing."""
    found = await matching_topics(admin, names)
    for one in await admin.describe_topics(found) if found else ():
        if isinstance(one.error, UnknownTopicOrPartitionError):
            raise one.error
    return found


def no_such_partition(topics: Sequence[str], number: str) -> UnknownTopicOrPartitionError:
    if len(topics) == 1:
        return UnknownTopicOrPartitionError(f"topic {topics[0]} has no partition {number}")
    return UnknownTopicOrPartitionError(f"none of {len(topics)} topics has a partition {number}")


def one_name(name: str | None, flag_name: str | None) -> str:
    """For commands that read, a regular expression too."""
    if name and flag_name and name != flag_name:
        raise click.UsageError(f"Two topics are given, {name} and {flag_name}: give one.")
    if not (name or flag_name):
        raise click.UsageError("Give a topic: TOPIC, or --topic TOPIC.")
    return name or flag_name or ""


def topic_to_write_to(name: str | None, flag_name: str | None) -> str:
    """As `one_name`, for commands that write: no regular expression."""
    topic = one_name(name, flag_name)
    if is_expression(topic):
        raise click.UsageError(
            f"{topic!r} is not the name of a topic, which has letters, digits, '.', '_' and '-' only: this command "
            "writes to one topic, give its name. Only commands that read take regular expressions."
        )
    return topic


def key_values(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parses NAME=VALUE items."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r}: must be NAME=VALUE.", param_hint=option)
        found[name.strip()] = value
    return found


def topic_partition(text: str) -> TopicPartition:
    """Parses `topic-0` or `topic:0`."""
    match = _TOPIC_PARTITION.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r}: must be TOPIC-PARTITION, such as orders-0.")
    return TopicPartition(match["topic"], PartitionId(int(match["partition"])))


def is_number(text: str, most: int) -> bool:
    """Whether it is a whole number in 0..most, maybe with zeros before it. int() refuses thousands of digits with an
    error of its own.
    """
    return text.isdecimal() and len(text) <= _DIGITS_MAX and int(text) <= most


def whole_number(given: object, least: int, most: int) -> int:
    """ValueError. JSON in Python has fractions, Infinity and true besides; a number in quotes is one, too."""
    if isinstance(given, str) and is_number(given.removeprefix("-"), most):
        given = int(given)
    if type(given) is not int or not least <= given <= most:
        raise ValueError(f"{given!r} is not a whole number in {least}..{most}")
    return given


def node_ids(text: str, option: str) -> tuple[int, ...]:
    """Parses `1,2,3`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(is_number(part, INT32_MAX) for part in parts):
        raise click.BadParameter(
            f"{text!r}: must be node ids, such as 1,2,3, each in 0..{INT32_MAX}.", param_hint=option
        )
    return tuple(int(part) for part in parts)


class Noun(click.Group):
    """A group of verbs, listed in the order of definition. Kafka's dashed verbs are accepted: `--create`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _undashed(args, self.commands))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Names the verbs where click knows none that is near."""
        unknown = args[0] not in self.commands and not args[0].startswith("-")
        if unknown and not ctx.resilient_parsing and not difflib.get_close_matches(args[0], self.commands):
            ctx.fail(f"No such command {args[0]!r}. The commands are: {', '.join(self.commands)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """With whole sentences, which click's own list truncates."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, verb.get_short_help_str(_SHORT_HELP_MAX)) for name, verb in self.commands.items()]
            )


def _undashed(args: list[str], verbs: Container[str]) -> list[str]:
    """Moves a dashed verb (`--list`) to the first place, without dashes, unless a verb is there already. Behind another
    word it is one only where Kafka has it: `quota alter --set` has an option of an unknown verb.
    """
    if not args or args[0] in verbs:
        return args
    of_kafka = not args[0].startswith("-")
    dashed = next(
        (arg for arg in args if arg[:2] == "--" and arg[2:] in verbs and (not of_kafka or arg in _KAFKAS_VERBS)), None
    )
    if dashed is None:
        return args
    at = args.index(dashed)
    return [dashed[2:], *args[:at], *args[at + 1 :]]
