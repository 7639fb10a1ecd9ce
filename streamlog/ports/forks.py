"""Forked processes: a client does not work in a process that was forked from its own; a new one does.

What a client needs stays with the parent: its thread, its event loop, and its connections, which both processes would
write to. So its parts are notified in the child, and refuse. They stay in memory there: the end of a loop would reach
into that of the parent, with which it shares the kernel's side.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol

from streamlog.errors import ClientClosedError


class Forked(Protocol):
    def forked(self) -> None:
        """Called in the child: from now on calls raise `forked_error`."""
        ...


_owners: Final[weakref.WeakSet[Forked]] = weakref.WeakSet()
_left: Final[list[Forked]] = []  # of processes above this one


def note_owner(owner: Forked) -> None:
    """Of what cannot be used in a child of this process."""
    _owners.add(owner)


def forked_error() -> ClientClosedError:
    return ClientClosedError(
        "this process was forked from the one that made this client, and it does not work here: make another one after"
        " the fork"
    )


def _in_child() -> None:
    left = list(_owners)
    _owners.clear()
    _left.extend(left)
    for owner in left:
        owner.forked()


os.register_at_fork(after_in_child=_in_child)
