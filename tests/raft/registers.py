"""The state machine of the quorum's tests, in simulation and in real processes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from msgspec import Struct

from streamlog.model import RaftIndex


class RegistersPicture(Struct, frozen=True):
    values: tuple[tuple[str, str], ...]
    count: int
    digest: bytes


class Registers:
    """Keys with values. `key=value` sets one and returns the value before; `!` raises.

    `digest` is a chain over all commands and their indexes: equal digests, equal histories.
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.count = 0
        self.digest = b""
        self.applied: list[tuple[int, str]] = []  # since this process began
        self.installed: list[int] = []

    def apply(self, index: RaftIndex, command: bytes) -> bytes:
        text = command.decode()
        if text == "!":
            raise ValueError("a command that no state machine survives")
        key, _, value = text.partition("=")
        before = self.values.get(key, "")
        self.values[key] = value
        self.count += 1
        self.digest = hashlib.blake2b(b"%s %d %s" % (self.digest, index, command), digest_size=16).digest()
        self.applied.append((index, text))
        return before.encode()

    def picture(self) -> RegistersPicture:
        return RegistersPicture(tuple(sorted(self.values.items())), self.count, self.digest)

    def encode(self, picture: RegistersPicture) -> Iterable[bytes]:
        yield b"%d %s\n" % (picture.count, picture.digest.hex().encode())
        for key, value in picture.values:
            yield f"{key}={value}\n".encode()

    def decode(self, pieces: Sequence[bytes]) -> RegistersPicture:
        head, *lines = b"".join(pieces).decode().splitlines()
        count, _, digest = head.partition(" ")
        pairs = (line.partition("=") for line in lines)
        return RegistersPicture(tuple((key, value) for key, _, value in pairs), int(count), bytes.fromhex(digest))

    def install(self, index: RaftIndex, picture: RegistersPicture) -> None:
        self.values, self.count, self.digest = dict(picture.values), picture.count, picture.digest
        self.installed.append(index)
