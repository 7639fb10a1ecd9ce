"""Producer tokens whose CRC is right: without it a node refuses them before it reads a number."""

from __future__ import annotations

import random
from typing import Any, Final

from streamlog.services.records.producer_token import ProducerToken

from .known import Known

_IDS: Final = (0, 1, 7, -1, -(1 << 63), (1 << 63) - 1)
_EPOCHS: Final = (0, 0, 1, -1, -(1 << 15), (1 << 15) - 1)
_SEQUENCES: Final = (0, 1, (1 << 31) - 1, -1, -(1 << 31))
_COUNTS: Final = (0, 1, 2, 7, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)


def token(rng: random.Random, known: Known) -> bytes:
    ids: list[Any] = [*known.topics.values(), rng.randbytes(16)]
    return ProducerToken(
        producer_id=rng.choice(_IDS),  # type: ignore[arg-type]
        producer_epoch=rng.choice(_EPOCHS),  # type: ignore[arg-type]
        sequences={(rng.choice(ids), rng.choice(_COUNTS)): rng.choice(_SEQUENCES) for _ in range(rng.randint(0, 3))},  # type: ignore[misc]
        counts={rng.choice(ids): rng.choice(_COUNTS) for _ in range(rng.randint(0, 3))},
    ).encode()
