"""Whether access control list entries and users restrict anyone: they do where the nodes have an authorizer."""

from __future__ import annotations

from typing import Final

from streamlog.cli.common.output import say
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import ConfigResource
from streamlog.errors import StreamlogError

_AUTHORIZER: Final = "authorizer.class.name"


async def say_without_authorizer(admin: AsyncAdmin) -> None:
    """Asks one node. Says nothing where its settings cannot be read: the command itself is done."""
    try:
        node = await admin.describe_node()
        [found] = await admin.describe_configs([ConfigResource.broker(node.node_id)], names=[_AUTHORIZER])
    except StreamlogError:
        return
    if found.error is None and found.entries and found.entries[0].value == "none":
        say(
            f"Note: node {node.node_id} has no authorizer: entries and users have no effect, and everyone who connects "
            f"may do everything, until all nodes have {_AUTHORIZER}=StandardAuthorizer and TLS (docs/security.md).",
            err=True,
        )
