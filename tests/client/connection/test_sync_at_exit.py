"""A program that ends without having closed its client ends all the same."""

from __future__ import annotations

import subprocess
import sys

# As a consumer's loop in a generator that was not read to its end.
PROGRAM = """
import asyncio
from streamlog.client.connection.sync_loop import LoopThread

def rows(how):
    thread = LoopThread("client")
    try:
        yield
    finally:
        print("closed" if thread.closed else "open", flush=True)
        getattr(thread, how)(asyncio.sleep(0))

left = [rows(how) for how in ("call", "call_in_front")]
for one in left:
    next(one)
"""


def test_a_client_that_is_closed_by_the_end_of_the_interpreter() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    assert ended.stdout.split() == ["closed", "closed"]
    assert ended.stderr.count("ClientClosedError: the client is closed") == 2
