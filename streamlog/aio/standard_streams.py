"""Standard input, output and error of a process that was started without some of them (`command <&-`).

The next file or socket gets the free descriptor. What is printed goes there then, and libuv, which uvloop uses, ends
the process (SIGABRT) when it closes one of these three.
"""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """At the start of a program: /dev/null for those that are closed."""
    fill_standard_descriptors()
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115  as long as the process


def fill_standard_descriptors() -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free one is `number`
