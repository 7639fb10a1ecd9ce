"""A rate for moves, for their time: the settings of all nodes that bound replicas which are not in sync."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import click

from streamlog.cli.common.output import say
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import ConfigChange, ConfigResource, ConfigSource
from streamlog.config import Operation
from streamlog.errors import InvalidRequestError

_NAMES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_ALTER: Final = "streamlogctl config alter --all-brokers "
REMOVE_LIMIT: Final = _ALTER + " ".join(f"--delete-config {name}" for name in _NAMES)

throttle_option = click.option(
    "--throttle",
    metavar="BYTES",
    type=click.IntRange(1),
    help="Bytes a second, at most, that each node sends and receives for replicas that are not in sync; with --wait "
    "the limit is removed at the end, unless other replicas are still moving.",
)


async def set_throttle(admin: AsyncAdmin, rate: int) -> Callable[[AsyncAdmin], Awaitable[None]]:
    """On all nodes. Returns what restores the earlier values, unless others have been set, or replicas move, meanwhile.
    InvalidRequestError where another limit is in force while replicas move: the command that began the moves may have
    set it, and would not find it at their end.
    """
    everywhere = ConfigResource.all_brokers()
    earlier = await _limits(admin)
    if any(value != str(rate) for value in earlier.values()) and await admin.list_partition_reassignments():
        limits = ", ".join(f"{name}={value}" for name, value in earlier.items())
        raise InvalidRequestError(
            f"replicas are being moved with another limit ({limits}), and a limit holds for all moves: leave "
            "--throttle out, or wait for their end (streamlogctl partition reassign --list). To change it at once: "
            f"{_ALTER}{' '.join(f'--set {name}={rate}' for name in _NAMES)}. To remove it: {REMOVE_LIMIT}",
            field="throttle",
        )
    await admin.alter_config(everywhere, [ConfigChange(name=name, value=str(rate)) for name in _NAMES])
    say(f"Moves are limited to {rate:,} bytes/s on each node. To remove the limit: {REMOVE_LIMIT}", err=True)

    async def restore(admin: AsyncAdmin) -> None:
        present = await _limits(admin)
        own = [name for name, value in present.items() if value == str(rate)]
        if own and await admin.list_partition_reassignments():
            say(f"The limit of moves stays: other replicas are being moved. To remove it: {REMOVE_LIMIT}", err=True)
            return
        if own:
            await admin.alter_config(everywhere, [_earlier(name, earlier) for name in own])
        if len(own) < len(present):
            say(f"The limit of moves was changed meanwhile, and stays. To remove it: {REMOVE_LIMIT}", err=True)
        elif earlier and present:
            say(f"The limit of moves is what it was before. To remove it: {REMOVE_LIMIT}", err=True)
        else:
            say("The limit of moves is removed.", err=True)

    return restore


async def _limits(admin: AsyncAdmin) -> dict[str, str]:
    """Those that are set for all nodes."""
    (described,) = await admin.describe_configs([ConfigResource.all_brokers()], names=_NAMES)
    if described.error is not None:
        raise described.error
    return {
        entry.name: entry.value
        for entry in described.entries
        if entry.source is ConfigSource.DYNAMIC_ALL_BROKERS and entry.value is not None
    }


def _earlier(name: str, earlier: Mapping[str, str]) -> ConfigChange:
    if name in earlier:
        return ConfigChange(name=name, value=earlier[name])
    return ConfigChange(name=name, operation=Operation.DELETE)
