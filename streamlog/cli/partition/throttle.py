"""A rate for moves, for their time: the settings of all nodes that bound replicas which are not in sync."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import click

from streamlog.cli.common.output import say
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import ConfigChange, ConfigResource, ConfigSource
from streamlog.config import Operation

_NAMES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REMOVE_LIMIT: Final = "streamlogctl config alter --all-brokers " + " ".join(
    f"--delete-config {name}" for name in _NAMES
)

throttle_option = click.option(
    "--throttle",
    metavar="BYTES",
    type=click.IntRange(1),
    help="Bytes a second, at most, that each node sends and receives for replicas that are not in sync; with --wait "
    "the limit is removed at the end.",
)


async def set_throttle(admin: AsyncAdmin, rate: int) -> Callable[[AsyncAdmin], Awaitable[None]]:
    """On all nodes. Returns what restores the earlier values."""
    everywhere = ConfigResource.all_brokers()
    (described,) = await admin.describe_configs([everywhere], names=_NAMES)
    if described.error is not None:
        raise described.error
    earlier = {
        entry.name: entry.value
        for entry in described.entries
        if entry.source is ConfigSource.DYNAMIC_ALL_BROKERS and entry.value is not None
    }
    await admin.alter_config(everywhere, [ConfigChange(name=name, value=str(rate)) for name in _NAMES])
    say(f"Moves are limited to {rate:,} bytes/s on each node. To remove the limit: {REMOVE_LIMIT}", err=True)

    async def restore(admin: AsyncAdmin) -> None:
        await admin.alter_config(
            everywhere,
            [
                ConfigChange(name=name, value=earlier[name])
                if name in earlier
                else ConfigChange(name=name, operation=Operation.DELETE)
                for name in _NAMES
            ],
        )
        say("The limit of moves is removed." if not earlier else "The limit of moves is what it was before.", err=True)

    return restore
