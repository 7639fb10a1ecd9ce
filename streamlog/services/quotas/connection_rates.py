"""How fast each address may open connections, by the metadata image; and all together, by the node's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streamlog.access.quotas import CONNECTION_CREATION_RATE, DEFAULT, QuotaEntity
from streamlog.metadata.image.image import NO_LIMITS
from streamlog.metadata.view import MetadataView
from streamlog.model import INT32_MAX

_DEFAULT: Final = QuotaEntity(ip=DEFAULT)


class ConnectionRates:
    """Of one node: what its network enforces, in connections a second. May be called in any thread."""

    def __init__(self, view: MetadataView, total: Callable[[], int]) -> None:
        """`total`: max.connection.creation.rate."""
        self._view = view
        self._total = total
        self._quotas: object = None  # of which `_of_addresses` is
        self._of_addresses = False

    @property
    def total(self) -> float | None:
        """None: no limit."""
        total = self._total()
        return None if total == INT32_MAX else total

    def of(self, address: str) -> float | None:
        """None: no limit."""
        quotas = self._view.image.quotas
        for entity in (QuotaEntity(ip=address), _DEFAULT):
            rate = quotas.get(entity, NO_LIMITS).get(CONNECTION_CREATION_RATE)
            if rate is not None:
                return rate
        return None

    @property
    def active(self) -> bool:
        """Whether there is any limit."""
        quotas = self._view.image.quotas
        if quotas is not self._quotas:
            self._of_addresses = any(entity.ip is not None for entity in quotas)
            self._quotas = quotas
        return self._of_addresses or self.total is not None
