"""What unpacking may cost: the limit, and the one error for passing it."""

from __future__ import annotations

from typing import Final

from streamlog.errors import MessageTooLargeError

# What one batch may unpack to where the caller names no limit of his own. Kafka's precedent is the largest request
# that a broker takes (`socket.request.max.bytes`, 100 MiB): nobody could have sent the records unpacked.
UNPACKED_BYTES_MAX: Final = 104_857_600

# The size of what has not been looked at to its end: more than any limit.
NOT_SAID: Final = 1 << 62


def too_large(size_bytes_max: int) -> MessageTooLargeError:
    return MessageTooLargeError(f"the records unpack to more than {size_bytes_max} bytes", limit=size_bytes_max)
