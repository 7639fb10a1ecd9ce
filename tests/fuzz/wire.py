"""Connections to the port of a node that break HTTP/2, or take from it what they can.

noise      random bytes, after the preface
frames     frames at random
flood      thousands of frames of one kind
resets     calls that are reset as soon as they are begun
blocks     header blocks without end, or that unpack to much
halves     calls whose messages do not end, a byte at a time
unread     large answers, and pings, of which nothing is read
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import hpack

from streamlog.ports.grpc_adapter import frames
from streamlog.ports.grpc_adapter.frames import Code, SettingKey

THREADS: Final = 2
HOLD_S: Final = 0.5
"""How long a connection is held once all is sent, if the node leaves it open."""
SEND_S: Final = 2.0
_GREETING: Final = frames.PREFACE + frames.settings({}) + frames.SETTINGS_ACK
_METHODS: Final = (
    "/grpc.health.v1.Health/Check",
    "/streamlog.v1.Records/Consume",
    "/streamlog.v1.Records/Publish",
    "/streamlog.v1.Unknown/Unknown",
)
_KINDS: Final = range(11)

Attack = Callable[[random.Random], Iterator[bytes]]


def _begin(chosen: random.Random, encoder: hpack.Encoder, number: int, flags: int = frames.END_HEADERS) -> bytes:
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", chosen.choice(_METHODS)),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    return frames.frame(frames.HEADERS, flags, number, encoder.encode(fields))


def _noise(chosen: random.Random) -> Iterator[bytes]:
    yield _GREETING[: chosen.choice([0, 5, 24, len(_GREETING)])]
    for _ in range(20):
        yield chosen.randbytes(chosen.randrange(1, 4_000))


def _frames(chosen: random.Random) -> Iterator[bytes]:
    encoder = hpack.Encoder()
    yield _GREETING
    for number in range(1, 400, 2):
        if chosen.random() < 0.3:
            yield _begin(chosen, encoder, number)
        stream = chosen.choice([0, number, max(1, number - 2), 2])
        payload = chosen.randbytes(chosen.choice([0, 4, 5, 6, 8, 100]))
        yield frames.frame(chosen.choice(_KINDS), chosen.choice([0, 1, 4, 5, 8, 32]), stream, payload)


def _flood(chosen: random.Random) -> Iterator[bytes]:
    yield _GREETING + _begin(chosen, hpack.Encoder(), 1)
    one = chosen.choice(
        [
            frames.PING_OF_OURS,
            frames.settings({SettingKey.INITIAL_WINDOW_SIZE: 5}) + frames.settings({SettingKey.INITIAL_WINDOW_SIZE: 6}),
            frames.settings({SettingKey.HEADER_TABLE_SIZE: 0}) + frames.settings({SettingKey.HEADER_TABLE_SIZE: 4_096}),
            frames.frame(frames.PRIORITY, 0, 3, bytes(5)),
            frames.frame(frames.DATA, 0, 1),
            frames.frame(frames.DATA, 0, 1, bytes(5)),
            frames.window_update(0, 1),
            frames.frame(0xBE, 0, 1),
        ]
    )
    for _ in range(200):
        yield one * 200


def _resets(chosen: random.Random) -> Iterator[bytes]:
    encoder = hpack.Encoder()
    yield _GREETING
    by_fault = chosen.random() < 0.5
    for number in range(1, 20_000, 2):
        end = frames.window_update(number, 0) if by_fault else frames.reset(number, Code.CANCEL)
        yield _begin(chosen, encoder, number) + end


def _blocks(chosen: random.Random) -> Iterator[bytes]:
    yield _GREETING
    if chosen.random() < 0.5:
        yield frames.frame(frames.HEADERS, 0, 1)
        for _ in range(1_000):
            yield frames.frame(frames.CONTINUATION, 0, 1, bytes(1_000))
    else:
        for number in range(1, 400, 2):
            block = b"\x40\x01a\x7f\x81\x16" + bytes(2_944) + b"\xbe" * chosen.choice([1, 4, 30_000])
            yield frames.frame(frames.HEADERS, frames.END_HEADERS, number, block)


def _halves(chosen: random.Random) -> Iterator[bytes]:
    encoder = hpack.Encoder()
    yield _GREETING
    for number in range(1, 200, 2):
        yield _begin(chosen, encoder, number) + frames.frame(frames.DATA, 0, number, b"\0\0\x3f\0\0" + bytes(20_000))
    for number in range(1, 200, 2):
        for byte in frames.frame(frames.DATA, 0, number, b"ab"):
            yield bytes([byte])


def _unread(chosen: random.Random) -> Iterator[bytes]:
    encoder = hpack.Encoder()
    yield _GREETING + frames.settings({SettingKey.INITIAL_WINDOW_SIZE: 1 << 30}) + frames.window_update(0, 1 << 30)
    for number in range(1, 2_000, 2):
        yield _begin(chosen, encoder, number) + frames.frame(frames.DATA, frames.END_STREAM, number, bytes(5))
        yield frames.PING_OF_OURS


ATTACKS: Final[dict[str, Attack]] = {
    "noise": _noise,
    "frames": _frames,
    "flood": _flood,
    "resets": _resets,
    "blocks": _blocks,
    "halves": _halves,
    "unread": _unread,
}


class RawPeers:
    """Connect until they are stopped; remember how it ended."""

    def __init__(self, seed: int, addresses: list[str]) -> None:
        self.seed = seed
        self.ends: Counter[tuple[str, str]] = Counter()  # attack, how it ended
        self.sent_bytes = 0
        self._addresses = addresses
        self._next = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(THREADS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def save_recent(self) -> str:
        with self._lock:
            return f"raw connections up to number {self._next} of seed {self.seed}"

    def facts(self) -> Iterator[str]:
        yield f"{self.ends.total()} raw connections, {self.sent_bytes >> 20} MB sent"
        for attack in ATTACKS:
            shown = [f"{end} {count}" for (name, end), count in self.ends.most_common() if name == attack]
            if shown:
                yield f"  {attack}: {', '.join(shown)}"

    def _work(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                number, self._next = self._next, self._next + 1
            chosen = random.Random(f"{self.seed} {number}")
            attack = chosen.choice(sorted(ATTACKS))
            host, _, port = chosen.choice(self._addresses).rpartition(":")
            try:
                with socket.create_connection((host, int(port)), timeout=SEND_S) as made:
                    end, sent = _attacked(made, ATTACKS[attack](chosen), reads=attack != "unread")
            except OSError as error:
                end, sent = f"not connected ({type(error).__name__})", 0
            with self._lock:
                self.ends[attack, end] += 1
                self.sent_bytes += sent


def _attacked(made: socket.socket, data: Iterator[bytes], *, reads: bool) -> tuple[str, int]:
    """How it ended, and how many bytes were sent."""
    sent, answered = 0, b""
    until = time.monotonic() + SEND_S
    try:
        for one in data:
            if time.monotonic() > until:
                break
            made.sendall(one)
            sent += len(one)
            if reads:
                answered += _arrived(made)
    except OSError:
        pass  # the node has ended it, or reads no more
    with suppress(OSError):
        made.settimeout(HOLD_S)
        while part := made.recv(1 << 16):
            answered = (answered + part)[-(1 << 20) :]
    return _end_of(answered), sent


def _arrived(made: socket.socket) -> bytes:
    try:
        return made.recv(1 << 16, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


def _end_of(answered: bytes) -> str:
    """By the GOAWAY, which is the last frame."""
    for code in Code:
        for text_bytes in range(frames.GO_AWAY_TEXT_MAX):
            at = len(answered) - frames.FRAME_BYTES - 8 - text_bytes
            if at < 0:
                break
            if answered[at : at + 4] == (8 + text_bytes).to_bytes(3, "big") + bytes([frames.GOAWAY]) and answered[
                at + 13 : at + 17
            ] == code.to_bytes(4, "big"):
                return code.name
    return "left open" if answered else "no answer"
