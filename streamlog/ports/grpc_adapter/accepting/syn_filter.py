"""Requests to connect from some addresses are not answered for a while, by a filter in the kernel.

A classic BPF program on the listening socket (SO_ATTACH_FILTER of socket(7), which needs no privilege) sees each packet
for it and drops the SYN of these addresses. The caller's kernel sends it again after 1, 3, 7 seconds, so to the caller
it takes longer to connect, and the process has no work at all. Connections that exist inherit the filter when they are
accepted, and are not affected: their packets are not a SYN.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

ADDRESSES_MAX: Final = 64
"""In one filter: at most 600 instructions of 4,096."""

# Of <linux/filter.h>, <asm-generic/socket.h>.
_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_LOAD_BYTE, _LOAD_WORD, _AND, _JUMP_EQUAL, _RETURN = 0x30, 0x20, 0x54, 0x15, 0x06
_IP_HEADER: Final = -0x100000  # SKF_NET_OFF: offsets from here are into the IP header
_FLAGS: Final = 13  # offset in the TCP header
_SYN, _SYN_OR_ACK = 0x02, 0x12
_SOURCE_OF_4, _SOURCE_OF_6 = 12, 8
_PASS, _DROP = 0xFFFFFFFF, 0


def refuse(listening: Iterable[socket.socket], addresses: Iterable[str], *, everyone: bool = False) -> None:
    """Drop requests to connect from these addresses, and from no others. OSError if the kernel cannot."""
    program = _program(addresses, everyone=everyone)
    code = ctypes.create_string_buffer(b"".join(program))
    for one in listening:
        if program:
            described = struct.pack("@HP", len(program), ctypes.addressof(code))
            one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)
        else:
            _detach(one)


def _detach(one: socket.socket) -> None:
    try:
        one.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
    except FileNotFoundError:  # it has none
        pass


def _program(addresses: Iterable[str], *, everyone: bool) -> list[bytes]:
    """Empty: everything passes."""
    found = [ip_address(one) for one in addresses][:ADDRESSES_MAX]
    if not found and not everyone:
        return []
    begin = [
        _instruction(_LOAD_BYTE, _FLAGS),
        _instruction(_AND, _SYN_OR_ACK),
        _instruction(_JUMP_EQUAL, _SYN, if_equal=1),
        _instruction(_RETURN, _PASS),
    ]
    if everyone:
        return [*begin, _instruction(_RETURN, _DROP)]
    of_4 = [code for one in found if isinstance(one, IPv4Address) for code in _dropping_4(one)]
    of_6 = [code for one in found if isinstance(one, IPv6Address) for code in _dropping_6(one)]
    version = [_instruction(_LOAD_BYTE, _IP_HEADER), _instruction(_AND, 0xF0)]
    passing = _instruction(_RETURN, _PASS)
    # A jump reaches 255 instructions, so the two parts are not jumped over: each begins with a look at the version.
    return [
        *begin,
        *version,
        *_only_if(0x40, [_instruction(_LOAD_WORD, _IP_HEADER + _SOURCE_OF_4), *of_4, passing]),
        *of_6,
        passing,
    ]


def _only_if(value: int, work: list[bytes]) -> list[bytes]:
    """`work` ends with a return. At most 255 instructions."""
    return [_instruction(_JUMP_EQUAL, value, if_not=len(work)), *work]


def _dropping_4(address: IPv4Address) -> list[bytes]:
    """The source address has been loaded."""
    return [_instruction(_JUMP_EQUAL, int(address), if_not=1), _instruction(_RETURN, _DROP)]


def _dropping_6(address: IPv6Address) -> list[bytes]:
    words = struct.unpack(">4I", address.packed)
    code: list[bytes] = []
    for number, word in enumerate(words):
        left = 2 * (len(words) - 1 - number) + 1  # instructions after this pair, of this address
        code.append(_instruction(_LOAD_WORD, _IP_HEADER + _SOURCE_OF_6 + 4 * number))
        code.append(_instruction(_JUMP_EQUAL, word, if_not=left))
    return [*code, _instruction(_RETURN, _DROP)]


def _instruction(code: int, value: int, *, if_equal: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_equal, if_not, value & 0xFFFFFFFF)
