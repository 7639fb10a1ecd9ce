"""The shape of every decision of the controller, and what it may know beside the image.

    decide(command, image, context) -> Decision(response, records, timers, then)

A decision function is pure: it reads an image, and nothing but the replay of its records ever changes one. The shell
(the active controller's node) commits the records as one command of the quorum, and answers with the response once
they are applied; a refusal is a StreamlogError, and changes nothing. Equal arguments give equal decisions.

- An image to decide on is the one that all earlier decisions have been applied to. To decide further commands before
  the first is committed, take `look_ahead` of its records; drop what was looked ahead when leadership is lost. Their
  records may go into one command of the quorum. A registration ends the looking ahead: its epoch is its index.
- A change may be larger than one command should be. `then` says how it goes on once these records are committed.
  Whoever takes over in between loses nothing: every step is sound in itself, and `settle` finds what is left to do.
- A timer belongs to the active controller and dies with it. When one is due, `command_for(timer)` is decided.
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

# Records of one command, unless what was asked must be atomic. Some 30 to 60 ms of every voter's loop, which is well
# below the election time-out.
BATCH_RECORDS: Final = 2_000


class BrokerSessionTimer(Struct, frozen=True):
    """Runs while a registered node need not be heard from; one for each broker id."""

    broker_id: BrokerId


class BalanceTimer(Struct, frozen=True):
    """Until leaderships are next given back to the preferred replicas."""


Timer: TypeAlias = BrokerSessionTimer | BalanceTimer


class SetControllerTimer(Struct, frozen=True):
    timer: Timer
    after_ms: int | None  # from now on, in the place of what was set; None: stop it


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
    """What configs exist and which values they may have: `streamlog.config`, over the node's own settings."""

    def changed_value(self, scope: Scope, name: str, operation: Operation, given: str, old: str | None) -> str | None:
        """The canonical text to store, None for none. InvalidConfigError where the resource has no such config, or it
        cannot be changed while running, or not to this value.
        """
        ...

    def check_together(self, scope: Scope, values: Mapping[str, str]) -> None:
        """InvalidConfigError where the resource cannot have these values side by side."""
        ...


class ControllerContext(Struct, frozen=True, kw_only=True):
    """What the controller knows beside the image."""

    settings: ControllerSettings
    configs: ConfigRules
    random: RandomBits  # for topic ids alone
    sessions: Collection[BrokerId]  # those whose SessionTimer runs
    horizon: RaftIndex = RaftIndex(0)  # where the image was a session ago: a node that follows has got there
