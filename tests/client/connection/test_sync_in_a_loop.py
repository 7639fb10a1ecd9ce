"""The synchronous fronts in a program that has an event loop of its own, as a notebook has."""

from __future__ import annotations

from streamlog.client import Admin, Consumer, Producer


async def test_they_are_closed_while_a_loop_runs() -> None:
    for front in (Admin, Consumer, Producer):
        with front(bootstrap_servers="127.0.0.1:1"):
            pass
