"""`streamlogctl group`: list, describe, delete, delete-offsets; `reset_offsets` has reset-offsets.

Columns that Kafka's tool prints have its names.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import click

from streamlog.cli.common.failures import complain, end_with
from streamlog.cli.common.nouns import Noun
from streamlog.cli.common.output import Cell, Output, Row, output_option, say, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.group.partitions import chosen_partitions, matched, one_group, topics_option
from streamlog.cli.group.reset_offsets import reset_offsets
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.group_values import GroupDescription, GroupState, PartitionLag
from streamlog.errors import GroupIdNotFoundError, StreamlogError

_LIST_COLUMNS: Final = ("group", "state", "member_count", "coordinator")
_OFFSET_COLUMNS: Final = (
    "group",
    "topic",
    "partition",
    "current_offset",
    "log_end_offset",
    "lag",
    "consumer_id",
    "host",
    "client_id",
)
_MEMBER_COLUMNS: Final = ("group", "consumer_id", "instance_id", "host", "client_id", "epoch", "partition_count")
_STATE_COLUMNS: Final = ("group", "coordinator", "assignor", "state", "epoch", "member_count")
_HEADINGS: Final = {
    "current_offset": "current-offset",
    "log_end_offset": "log-end-offset",
    "consumer_id": "consumer-id",
    "client_id": "client-id",
    "instance_id": "group-instance-id",
    "partition_count": "#partitions",
    "member_count": "#members",
    "coordinator": "coordinator (id)",
    "assignor": "assignment-strategy",
}
_WATCH_MS: Final = 1_000


@click.group(cls=Noun)
def group() -> None:
    """List, describe, reset and delete consumer groups."""


group.add_command(reset_offsets)


def groups_argument(command: Callable[..., object]) -> Callable[..., object]:
    argument = click.argument("names", metavar="[GROUP]...", nargs=-1)
    flag = click.option("--group", "flag_names", metavar="GROUP", multiple=True, help="As GROUP; can be repeated.")
    return argument(flag(click.option("--all-groups", is_flag=True, help="All groups.")(command)))


async def _named(admin: AsyncAdmin, names: Sequence[str], flag_names: Sequence[str], *, all_groups: bool) -> list[str]:
    if all_groups:
        return [one.group for one in (await admin.list_groups()).groups]
    return list(dict.fromkeys((*names, *flag_names)))


def _check_names(names: Sequence[str], flag_names: Sequence[str], *, all_groups: bool) -> None:
    if all_groups == bool(names or flag_names):
        raise click.UsageError("Give a group: GROUP, --group GROUP, or --all-groups.")


@group.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice([one.value for one in GroupState if one is not GroupState.UNKNOWN], case_sensitive=False),
    multiple=True,
    help="Only those in this state; can be repeated.",
)
@output_option
@cluster_options
def list_(target: Target, output: Output, states: tuple[str, ...]) -> None:
    """List groups that have members or committed offsets.

    \b
    Examples:
      streamlogctl group list
      streamlogctl group list --state stable --output json | jq -r '.[].group'
    """
    wanted = [GroupState(state) for state in states]
    found = with_admin(target, lambda admin: admin.list_groups(states=wanted))
    rows: list[Row] = [
        {
            "group": one.group,
            "state": one.state.value,
            "member_count": one.member_count,
            "coordinator": one.coordinator,
        }
        for one in found.groups
    ]
    show_rows(output, rows, columns=_LIST_COLUMNS, headings=_HEADINGS)
    end_with((f"node {node}", error) for node, error in found.errors.items())


@group.command
@groups_argument
@click.option("--offsets", "view", flag_value="offsets", default=True, help="Committed offsets and lag. Default.")
@click.option("--members", "view", flag_value="members", help="The members.")
@click.option("--state", "view", flag_value="state", help="The state and the coordinator.")
@click.option("-v", "--verbose", is_flag=True, help="With --members: their partitions.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval-ms", type=click.IntRange(100), default=_WATCH_MS, show_default=True, help="Interval of --watch."
)
@output_option
@cluster_options
def describe(
    target: Target,
    output: Output,
    names: tuple[str, ...],
    flag_names: tuple[str, ...],
    *,
    all_groups: bool,
    view: str,
    verbose: bool,
    watch: bool,
    interval_ms: int,
) -> None:
    """Describe groups: offsets and lag, members, or the state.

    \b
    CURRENT-OFFSET is the next offset that the group reads, LAG the number of uncommitted records; -: none, or unknown.

    \b
    Examples:
      streamlogctl group describe billing
      streamlogctl group describe billing --members --verbose
      streamlogctl group describe --all-groups --state
      streamlogctl group describe billing --watch
    """
    _check_names(names, flag_names, all_groups=all_groups)

    async def look(admin: AsyncAdmin) -> list[GroupDescription]:
        named = await _named(admin, names, flag_names, all_groups=all_groups)
        described = await admin.describe_groups(named)
        shown = _VIEWS[view]
        found = [one for one in described if one.error is None]
        if not found and described and output is not Output.JSON:
            return list(described)  # errors alone: no table without rows
        rows = [row for one in found for row in await shown(admin, one)]
        columns = _COLUMNS[view] + (("assignment",) if verbose and view == "members" else ())
        if watch and sys.stdout.isatty():
            click.clear()
        show_rows(
            output,
            rows if output is Output.JSON else [_dashed(row) for row in rows],
            columns=columns,
            headings=_HEADINGS,
        )
        return list(described)

    async def look_on(admin: AsyncAdmin) -> None:
        while True:
            for one in await look(admin):
                if one.error is not None:
                    complain(one.error)
            sys.stdout.flush()
            await asyncio.sleep(interval_ms / 1_000)

    if watch:
        with_admin(target, look_on)
    else:
        end_with(("", one.error) for one in with_admin(target, look))


async def _offset_rows(admin: AsyncAdmin, described: GroupDescription) -> list[Row]:
    try:
        lags = await admin.group_lag(described.group, described)
    except GroupIdNotFoundError:  # just deleted
        return []
    return [_offset_row(described.group, one) for one in lags]


def _offset_row(name: str, one: PartitionLag) -> Row:
    member = one.member
    return {
        "group": name,
        "topic": one.at.topic,
        "partition": one.at.partition,
        "current_offset": None if one.committed is None else one.committed.offset,
        "log_end_offset": one.log_end,
        "lag": one.lag,
        "consumer_id": None if member is None else member.member_id,
        "host": None if member is None else member.host,
        "client_id": None if member is None else member.client_id,
    }


async def _member_rows(_admin: AsyncAdmin, described: GroupDescription) -> list[Row]:
    return [
        {
            "group": described.group,
            "consumer_id": one.member_id,
            "instance_id": one.instance_id or None,
            "host": one.host,
            "client_id": one.client_id,
            "epoch": one.epoch,
            "partition_count": len(one.assignment),
            "assignment": [str(partition) for partition in one.assignment],
            "target": [str(partition) for partition in one.target],
            "topics": one.topics,
            "pattern": one.pattern or None,
        }
        for one in described.members
    ]


async def _state_rows(_admin: AsyncAdmin, described: GroupDescription) -> list[Row]:
    node = described.coordinator
    return [
        {
            "group": described.group,
            "coordinator": None if node is None else f"{described.coordinator_address} ({node})",
            "assignor": described.assignor,
            "state": described.state.value,
            "epoch": described.group_epoch,
            "member_count": len(described.members),
        }
    ]


_View = Callable[[AsyncAdmin, GroupDescription], Awaitable[list[Row]]]
_VIEWS: Final[dict[str, _View]] = {"offsets": _offset_rows, "members": _member_rows, "state": _state_rows}
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "offsets": _OFFSET_COLUMNS,
    "members": _MEMBER_COLUMNS,
    "state": _STATE_COLUMNS,
}


def _dashed(row: Row) -> Row:
    """With a dash for missing values, as in Kafka's tool."""

    def dashed(cell: Cell) -> Cell:
        return "-" if cell is None or cell in ("", []) else cell

    return {name: dashed(cell) for name, cell in row.items()}


@group.command
@groups_argument
@cluster_options
def delete(target: Target, names: tuple[str, ...], flag_names: tuple[str, ...], *, all_groups: bool) -> None:
    """Delete groups without members, and their offsets.

    \b
    Example:
      streamlogctl group delete billing
    """
    _check_names(names, flag_names, all_groups=all_groups)

    async def work(admin: AsyncAdmin) -> list[tuple[str, StreamlogError | None]]:
        named = await _named(admin, names, flag_names, all_groups=all_groups)
        return [(one.group, one.error) for one in (await admin.delete_groups(named) if named else ())]

    results = with_admin(target, work)
    for name, error in results:
        if error is None:
            say(f"Deleted group {name}.")
    end_with(results)


@group.command("delete-offsets")
@click.argument("name", metavar="[GROUP]", required=False)
@click.option("--group", "flag_name", metavar="GROUP", help="As GROUP.")
@topics_option
@cluster_options
def delete_offsets(target: Target, name: str | None, flag_name: str | None, topics: tuple[str, ...]) -> None:
    """Delete a group's offsets of topics that none of its members is subscribed to.

    \b
    Examples:
      streamlogctl group delete-offsets billing --topic orders
      streamlogctl group delete-offsets billing --topic orders:0,1
    """
    named = one_group(name, flag_name)

    async def work(admin: AsyncAdmin) -> list[tuple[str, StreamlogError | None]]:
        await admin.describe_node()  # its error, soon, if no node can be reached: the coordinator is waited for longer
        committed = await admin.list_group_offsets(named)
        partitions = [one for one in chosen_partitions(await matched(admin, topics), committed) if one in committed]
        if not partitions:
            return []
        return [(str(one.at), one.error) for one in await admin.delete_group_offsets(named, partitions)]

    results = with_admin(target, work)
    for partition, error in results:
        if error is None:
            say(f"Deleted the offset of {partition}.")
    if not results:
        of = f" for topic {', '.join(map(repr, topics))}" if topics else ""
        say(f"Group {named!r} has no committed offsets{of}.")
    end_with(results)
