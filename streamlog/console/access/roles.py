"""Roles, actions, and the one table of which role an action needs. Pure.

A role may do all that a lower one may. An action without a row is refused to everyone (and fails a test).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final


class UserRole(IntEnum):
    """In ascending order of rights."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, label: str) -> UserRole:
        """ValueError."""
        for role in cls:
            if role.label == label:
                return role
        raise ValueError(f"there is no role {label!r}; roles are {', '.join(role.label for role in cls)}")


class Action(Enum):
    """The value is what a message and the audit log call it."""

    VIEW = "view"
    RECORDS_READ = "read records"
    RECORD_WRITE = "write a record"
    RECORD_DELETE = "delete records"
    TOPIC_CREATE = "create a topic"
    TOPIC_GROW = "add partitions"
    TOPIC_CONFIG = "change a topic's settings"
    TOPIC_DELETE = "delete a topic"
    GROUP_OFFSETS = "change a group's offsets"
    GROUP_DELETE = "delete a group"
    TRANSACTION_END = "end a transaction"
    ELECTION_PREFERRED = "elect preferred leaders"
    ELECTION_UNCLEAN = "elect leaders uncleanly"
    REASSIGNMENT = "move partitions"
    REPLICA_REPAIR = "repair replicas"
    NODE_DRAIN = "drain a node"
    NODE_UNREGISTER = "unregister a node"
    NODE_CONFIG = "change a node's settings"
    QUOTA_CHANGE = "change quotas"
    QUORUM_CHANGE = "change the voters"
    METADATA_VERSION = "raise metadata.version"
    ALARM_SILENCE = "silence an alarm"
    ALARM_TEST = "send a test alarm"
    ALARM_RULES = "change alarm rules"
    AUDIT_READ = "read the audit log"


LEAST_ROLE: Final[Mapping[Action, UserRole]] = {
    Action.VIEW: UserRole.VIEWER,
    Action.RECORDS_READ: UserRole.VIEWER,
    Action.RECORD_WRITE: UserRole.OPERATOR,
    Action.RECORD_DELETE: UserRole.ADMIN,
    Action.TOPIC_CREATE: UserRole.OPERATOR,
    Action.TOPIC_GROW: UserRole.OPERATOR,
    Action.TOPIC_CONFIG: UserRole.OPERATOR,
    Action.TOPIC_DELETE: UserRole.ADMIN,
    Action.GROUP_OFFSETS: UserRole.OPERATOR,
    Action.GROUP_DELETE: UserRole.ADMIN,
    Action.TRANSACTION_END: UserRole.OPERATOR,
    Action.ELECTION_PREFERRED: UserRole.OPERATOR,
    Action.ELECTION_UNCLEAN: UserRole.ADMIN,
    Action.REASSIGNMENT: UserRole.OPERATOR,
    Action.REPLICA_REPAIR: UserRole.OPERATOR,
    Action.NODE_DRAIN: UserRole.OPERATOR,
    Action.NODE_UNREGISTER: UserRole.ADMIN,
    Action.NODE_CONFIG: UserRole.ADMIN,
    Action.QUOTA_CHANGE: UserRole.ADMIN,
    Action.QUORUM_CHANGE: UserRole.ADMIN,
    Action.METADATA_VERSION: UserRole.ADMIN,
    Action.ALARM_SILENCE: UserRole.OPERATOR,
    Action.ALARM_TEST: UserRole.OPERATOR,
    Action.ALARM_RULES: UserRole.ADMIN,
    Action.AUDIT_READ: UserRole.ADMIN,
}


def allows(role: UserRole, action: Action) -> bool:
    least = LEAST_ROLE.get(action)
    return least is not None and role >= least
