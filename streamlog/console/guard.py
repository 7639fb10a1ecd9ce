"""The one place where the console changes the cluster: an admin client that checks each call, and `write_record`.

`guarded` returns an admin client for pages. A method that changes something has a row in CHANGES: which action it is,
and on what. The user's role is checked, and the call recorded in the audit log, before it is made. A method that only
reads has its name in READS. Others are refused; a test compares both tables with the client.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from streamlog.client import AsyncProducer
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import ConfigResource, ElectionType, ResourceType
from streamlog.client.producer.batches.producer_batch import RecordMetadata
from streamlog.console.access.caller import permitted
from streamlog.console.access.roles import Action
from streamlog.errors import InvalidRequestError, StreamlogError

NAMES_SHOWN: Final = 20
"""In the target of one line of the audit log."""

Arguments = Mapping[str, Any]
What = Callable[[Arguments], tuple[Action, str]]

READS: Final = frozenset(
    {
        "list_topics",
        "describe_topics",
        "describe_topic",
        "describe_configs",
        "preview_unclean_election",
        "list_partition_reassignments",
        "digest_replicas",
        "describe_cluster",
        "describe_node",
        "describe_broker_loggers",
        "describe_log_dirs",
        "drain_progress",
        "list_groups",
        "describe_groups",
        "describe_group",
        "list_group_offsets",
        "list_offsets",
        "group_lag",
        "list_transactions",
        "describe_transactions",
        "find_hanging_transactions",
        "describe_acls",
        "describe_client_quotas",
        "test_access",
        "list_users",
    }
)


def _names(kind: str, names: Iterable[object]) -> str:
    listed = list(map(str, names))
    more = f" and {len(listed) - NAMES_SHOWN} more" if len(listed) > NAMES_SHOWN else ""
    return f"{kind} {', '.join(listed[:NAMES_SHOWN])}{more}"


def _simple(action: Action, kind: str, argument: str) -> What:
    return lambda given: (action, f"{kind} {given[argument]}")


def _config(alterations: Sequence[tuple[ConfigResource, Sequence[Any]]]) -> tuple[Action, str]:
    """The names of settings, never their values."""
    topics = all(resource.type is ResourceType.TOPIC for resource, _ in alterations)
    parts = [
        f"{resource.type.value} {resource.name or '(all)'}: {', '.join(one.name for one in changes)}"
        for resource, changes in alterations
    ]
    return Action.TOPIC_CONFIG if topics else Action.NODE_CONFIG, _names("settings of", parts)


def _election(given: Arguments) -> tuple[Action, str]:
    action = Action.ELECTION_UNCLEAN if given["kind"] is ElectionType.UNCLEAN else Action.ELECTION_PREFERRED
    return action, "all partitions" if given["partitions"] is None else _names("partitions", given["partitions"])


def _transaction_in_partition(given: Arguments) -> tuple[Action, str]:
    return Action.TRANSACTION_END, f"producer {given['producer_id']} in partition {given['partition']}"


CHANGES: Final[Mapping[str, What]] = {
    "create_topics": lambda given: (Action.TOPIC_CREATE, _names("topics", (one.name for one in given["topics"]))),
    "create_topic": _simple(Action.TOPIC_CREATE, "topic", "name"),
    "delete_topics": lambda given: (Action.TOPIC_DELETE, _names("topics", [*given["names"], *given["topic_ids"]])),
    "delete_topic": _simple(Action.TOPIC_DELETE, "topic", "name"),
    "delete_records": lambda given: (Action.RECORD_DELETE, _names("partitions", given["before"])),
    "create_partitions": lambda given: (Action.TOPIC_GROW, _names("topics", (one.topic for one in given["growths"]))),
    "grow_topic": lambda given: (Action.TOPIC_GROW, f"topic {given['topic']} to {given['partition_count']}"),
    "alter_configs": lambda given: _config([(one.resource, one.changes) for one in given["alterations"]]),
    "alter_config": lambda given: _config([(given["resource"], given["changes"])]),
    "elect_leaders": _election,
    "alter_partition_reassignments": lambda given: (
        Action.REASSIGNMENT,
        _names("partitions", (one.at for one in given["reassignments"])),
    ),
    "alter_replica_log_dirs": lambda given: (
        Action.REASSIGNMENT,
        _names("replicas", (f"{one.topic}-{one.partition} on node {one.node_id}" for one in given["moves"])),
    ),
    "repair_replicas": lambda given: (Action.REPLICA_REPAIR, f"partition {given['topic']}-{given['partition']}"),
    "alter_broker_loggers": _simple(Action.NODE_CONFIG, "log levels of node", "node_id"),
    "create_acls": lambda given: (Action.NODE_CONFIG, _names("access control list entries", given["acls"])),
    "delete_acls": lambda given: (Action.NODE_CONFIG, _names("access control list entries", given["filters"])),
    "alter_client_quotas": lambda given: (
        Action.QUOTA_CHANGE,
        _names("quotas of", (f"{whose}: {', '.join(limits)}" for whose, limits in given["changes"].items())),
    ),
    "create_user": _simple(Action.NODE_CONFIG, "new user", "name"),
    "rotate_user": _simple(Action.NODE_CONFIG, "password of user", "name"),
    "delete_user": _simple(Action.NODE_CONFIG, "deleted user", "name"),
    "drain_node": _simple(Action.NODE_DRAIN, "node", "node_id"),
    "cancel_drain": lambda given: (Action.NODE_DRAIN, f"node {given['node_id']}, cancelled"),
    "unregister_node": _simple(Action.NODE_UNREGISTER, "node", "node_id"),
    "add_voter": _simple(Action.QUORUM_CHANGE, "add node", "node_id"),
    "remove_voter": _simple(Action.QUORUM_CHANGE, "remove node", "node_id"),
    "update_metadata_version": _simple(Action.METADATA_VERSION, "level", "level"),
    "delete_groups": lambda given: (Action.GROUP_DELETE, _names("groups", given["groups"])),
    "delete_group_offsets": _simple(Action.GROUP_OFFSETS, "deleted of group", "group"),
    "alter_group_offsets": lambda given: (
        Action.GROUP_OFFSETS,
        f"group {given['group']}, {_names('partitions', given['offsets'])}",
    ),
    "abort_transaction": _simple(Action.TRANSACTION_END, "transactional id", "transactional_id"),
    "end_prepared_transaction": _simple(Action.TRANSACTION_END, "transactional id", "transactional_id"),
    "abort_hanging_transaction": _transaction_in_partition,
}


def guarded(admin: AsyncAdmin) -> AsyncAdmin:
    """For pages. It is used like the client itself, but is neither started nor closed."""
    return cast(AsyncAdmin, _GuardedAdmin(admin))


class _GuardedAdmin:
    def __init__(self, admin: AsyncAdmin) -> None:
        self._admin = admin

    def __getattr__(self, name: str) -> Any:
        if name in READS:
            return getattr(self._admin, name)
        what = CHANGES.get(name)
        if what is None:
            raise InvalidRequestError(f"{name} is not available in the console.")
        return _checked(getattr(self._admin, name), what)


def _checked(method: Callable[..., Any], what: What) -> Callable[..., Any]:
    signature = inspect.signature(method)

    async def call(*args: Any, **named: Any) -> Any:
        given = signature.bind(*map(_repeatable, args), **{name: _repeatable(one) for name, one in named.items()})
        given.apply_defaults()
        action, target = what(given.arguments)
        async with permitted(action, target) as attempt:
            result = await method(*given.args, **given.kwargs)
            attempt.result = _outcome(result)
            return result

    return call


def _repeatable(value: Any) -> Any:
    """An iterator is read twice: for the audit log, and by the call."""
    return list(value) if hasattr(value, "__next__") else value


def _outcome(result: object) -> str:
    """Calls on several things return an error for each."""
    if not isinstance(result, tuple):
        return "done"
    errors = [error for one in result if isinstance(error := getattr(one, "error", None), StreamlogError)]
    return f"failed: {errors[0].code} ({len(errors)} of {len(result)})" if errors else "done"


async def write_record(
    settings: Mapping[str, object],
    topic: str,
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    partition: int | None = None,
) -> RecordMetadata:
    """StreamlogError. `settings`: of the producer."""
    async with permitted(Action.RECORD_WRITE, f"topic {topic}"), AsyncProducer(dict(settings)) as producer:
        return await producer.send(topic, value, key=key, headers=tuple(headers), partition=partition)
