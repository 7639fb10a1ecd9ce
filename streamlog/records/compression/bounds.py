"""The limit on unpacked bytes, and the error for exceeding it."""

from __future__ import annotations

from typing import Final

from streamlog.errors import MessageTooLargeError

# Limit for one batch where the caller has none. Kafka's precedent is the largest request that a broker accepts
# (`socket.request.max.bytes`, 100 MiB): no client could have sent the records unpacked.
UNPACKED_BYTES_MAX: Final = 104_857_600

# Size of a stream that was not read to its end: more than any limit.
NOT_SAID: Final = 1 << 62


def too_large(size_bytes_max: int) -> MessageTooLargeError:
    return MessageTooLargeError(f"the records unpack to more than {size_bytes_max} bytes", limit=size_bytes_max)
