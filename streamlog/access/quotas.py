"""Quotas: limits of users, client ids and addresses, with Kafka's names and precedence.

A limit of a call is looked up by key, at the first of these that has it:

    1  user, client id                    5  default user, default client id
    2  user, default client id            6  default user
    3  user                               7  client id
    4  default user, client id            8  default client id

Those who share a limit are a `QuotaHolder`: at level 3 all client ids of a user together, at level 6 each user by
itself, at level 7 all users of a client id together.

An address has one limit, `connection_creation_rate`: its own, or that of the default address.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from streamlog.access.addresses import address_of
from streamlog.errors import InvalidRequestError
from streamlog.printable import escaped

DEFAULT: Final = ""
"""As a name: each one that has no limits of its own."""
USER_LENGTH_MAX: Final = 900
CLIENT_ID_LENGTH_MAX: Final = 249
IP_LENGTH_MAX: Final = 64

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
KEYS: Final[Mapping[str, str]] = {
    PRODUCER_BYTE_RATE: "bytes of requests to write records, a second",
    CONSUMER_BYTE_RATE: "bytes of responses with records, a second",
    CONTROLLER_MUTATION_RATE: "partitions created and deleted, a second",
    REQUEST_PERCENTAGE: "percent of the time of each node's event loop",
}
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
ADDRESS_KEYS: Final[Mapping[str, str]] = {CONNECTION_CREATION_RATE: "connections from an address, a second"}
_WHOLE: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE})
VALUE_MIN: Final = 0.001
VALUE_MAX: Final = float(1 << 53)


class QuotaEntity(Struct, frozen=True, kw_only=True):
    """Whom limits apply to. A part that is None is not part of it; DEFAULT: see there."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None  # an address; with neither of the others

    def parts(self) -> tuple[str | None, ...]:
        return self.user, self.client_id, self.ip

    def __lt__(self, other: QuotaEntity) -> bool:
        return _order(self) < _order(other)

    def __str__(self) -> str:
        """As people write it: `user alice, default client id`."""
        named = (("user", self.user), ("client id", self.client_id), ("address", self.ip))
        return ", ".join(
            f"{kind} {escaped(name)}" if name else f"default {kind}" for kind, name in named if name is not None
        )


def _order(entity: QuotaEntity) -> tuple[tuple[bool, str], ...]:
    return tuple((part is not None, part or "") for part in entity.parts())


class QuotaMatch(Struct, frozen=True):
    """Of a part that must be there. `name`: None: all, the default too."""

    name: str | None = None


class QuotaFilter(Struct, frozen=True, kw_only=True):
    """Selects entities. A part that is None may be there or not; `strict`: it must not."""

    user: QuotaMatch | None = None
    client_id: QuotaMatch | None = None
    ip: QuotaMatch | None = None
    strict: bool = False

    def matches(self, entity: QuotaEntity) -> bool:
        for wanted, part in zip((self.user, self.client_id, self.ip), entity.parts(), strict=True):
            if wanted is None:
                if self.strict and part is not None:
                    return False
            elif part is None or wanted.name not in (None, part):
                return False
        return True


class QuotaHolder(NamedTuple):
    """Who shares one limit. None: it is not by this."""

    user: str | None
    client_id: str | None


class Limit(NamedTuple):
    rate: float
    holder: QuotaHolder


class _Quotas(Protocol):
    """Of an image: limits by key, by entity."""

    def get(self, entity: QuotaEntity, /) -> _Limits | None: ...


class _Limits(Protocol):
    def get(self, key: str, /) -> float | None: ...


def limit_of(quotas: _Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """None: there is no limit. `client_id`: empty where the client names none."""
    for entity, holder in _levels(user, client_id):
        limits = quotas.get(entity)
        rate = None if limits is None else limits.get(key)
        if rate is not None:
            return Limit(rate, holder)
    return None


def _levels(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, QuotaHolder]]:
    both, of_user, of_client = QuotaHolder(user, client_id), QuotaHolder(user, None), QuotaHolder(None, client_id)
    for name in (user, DEFAULT):
        if client_id:
            yield QuotaEntity(user=name, client_id=client_id), both
        yield QuotaEntity(user=name, client_id=DEFAULT), both
        yield QuotaEntity(user=name), of_user
    if client_id:
        yield QuotaEntity(client_id=client_id), of_client
    yield QuotaEntity(client_id=DEFAULT), of_client


def name_of(given: str, length_max: int) -> str:
    """A user or client id as a caller gives it, so that other nodes accept it in a report: they would refuse the whole
    report for a control character.
    """
    return escaped(given)[:length_max]


def check_entity(entity: QuotaEntity) -> None:
    """InvalidRequestError if it could never apply."""
    if all(part is None for part in entity.parts()):
        raise InvalidRequestError("a quota needs a user or a client id, or both, or an address", field="entity")
    if entity.ip is not None:
        _check_address(entity)
    for kind, name, length_max in (
        ("user", entity.user, USER_LENGTH_MAX),
        ("client_id", entity.client_id, CLIENT_ID_LENGTH_MAX),
    ):
        if name is not None and (len(name) > length_max or not name.isprintable()):
            raise InvalidRequestError(
                f"{kind} {escaped(name[:80])} must be printable, with at most {length_max} characters",
                field=kind,
                limit=length_max,
            )


def _check_address(entity: QuotaEntity) -> None:
    if entity.user is not None or entity.client_id is not None:
        raise InvalidRequestError(
            "a quota of an address is not one of a user or client id too: give them separately", field="entity"
        )
    if entity.ip != DEFAULT and entity.ip != address_of(entity.ip or ""):
        raise InvalidRequestError(
            f"ip {escaped((entity.ip or '')[:80])} is not an IP address in its usual form: 10.0.0.7, 2001:db8::7",
            field="ip",
        )


def check_limit(entity: QuotaEntity, key: str, value: float | None) -> None:
    """InvalidRequestError. `value`: None: removed."""
    keys = KEYS if entity.ip is None else ADDRESS_KEYS
    if key not in keys:
        raise InvalidRequestError(
            f"{escaped(key[:80])} is not a quota of {entity}: give one of {', '.join(keys)}", field="key"
        )
    if value is None:
        return
    if not (math.isfinite(value) and VALUE_MIN <= value <= VALUE_MAX):
        raise InvalidRequestError(
            f"{key} of {entity} must be a number from {VALUE_MIN} to {VALUE_MAX:.0f}, not {value}", field="value"
        )
    if key in _WHOLE and value != int(value):
        raise InvalidRequestError(f"{key} of {entity} must be a whole number of bytes, not {value}", field="value")
