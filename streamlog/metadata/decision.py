"""The shape of every decision of the controller, and its input besides the image.

    decide(command, image, context) -> MetadataDecision(response, records, timers, then)

A decision function is pure: it reads an image, and only the replay of its records makes another. The shell (the active
controller's node) commits the records as one command of the quorum and returns the response once they are applied; a
refusal is a StreamlogError and changes nothing. Equal arguments give equal decisions.

- A command is decided on the image to which all earlier decisions have been applied. To decide further commands before
  the first is committed, use `look_ahead` with its records; drop that image when leadership is lost. Their records may
  share one command of the quorum. A registration cannot be applied ahead: its epoch is its index.
- A change may be too large for one command. `then` says how to continue once these records are committed. A new
  controller in between loses nothing: every step is valid by itself, and `settle` finds what is left to do.
- A timer belongs to the active controller and ends with it. When one fires, `command_for(timer)` is decided.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from streamlog.config import Operation, Scope
from streamlog.metadata.records import MetadataRecord
from streamlog.metadata.settings import ControllerSettings
from streamlog.model import BrokerId, RaftIndex

R_co = TypeVar("R_co", covariant=True)

# Records of one command, unless the request must be atomic. About 30 to 60 ms of every voter's event loop, well below
# the election timeout.
BATCH_RECORDS: Final = 2_000


class BrokerSessionTimer(Struct, frozen=True):
    """A node's session: restarted by each heartbeat; one per broker id."""

    broker_id: BrokerId


class BalanceTimer(Struct, frozen=True):
    """Until the next balancing of leaders to the preferred replicas."""


Timer: TypeAlias = BrokerSessionTimer | BalanceTimer


class SetControllerTimer(Struct, frozen=True):
    timer: Timer
    after_ms: int | None  # from now on, replacing the current setting; None: stop it


class Then(enum.Enum):
    """What the shell does when the records are committed."""

    NOTHING = 0  # answers
    SETTLE = 1  # answers, and decides `Settle` on the new image
    AGAIN = 2  # decides the same command again on the new image, and answers with the last response alone


class MetadataDecision(Struct, Generic[R_co], frozen=True, kw_only=True):
    response: R_co
    records: tuple[MetadataRecord, ...] = ()  # one command of the quorum; empty: nothing to commit
    timers: tuple[SetControllerTimer, ...] = ()  # to set once the records are committed
    then: Then = Then.NOTHING


class RandomBits(Protocol):
    def getrandbits(self, k: int, /) -> int: ...


class ConfigRules(Protocol):
    """Which configs exist and which values they may have: `streamlog.config`, over the node's own settings."""

    def changed_value(self, scope: Scope, name: str, operation: Operation, given: str, old: str | None) -> str | None:
        """The canonical text to store, None for none. InvalidConfigError if the resource has no such config, or it
        cannot be changed at runtime, or not to this value.
        """
        ...

    def check_together(self, scope: Scope, values: Mapping[str, str]) -> None:
        """InvalidConfigError if the resource cannot have these values together."""
        ...


class ControllerContext(Struct, frozen=True, kw_only=True):
    """The controller's input besides the image."""

    settings: ControllerSettings
    configs: ConfigRules
    random: RandomBits  # for topic ids only
    sessions: Collection[BrokerId]  # those whose BrokerSessionTimer runs
    horizon: RaftIndex = RaftIndex(0)  # the index of a session timeout ago: a node that keeps up has applied it
