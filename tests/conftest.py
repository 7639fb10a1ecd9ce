"""What all tests share.

Hypothesis draws the same examples in every run, so a change is judged by its own effect, and a failure repeats at once.
`make test-random` draws new ones (HYPOTHESIS_PROFILE=random): a failing example found there is kept as an `@example`.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import settings
from pytest_timeout import Settings  # type: ignore[import-untyped]

# Tests that run as a background job of a shell inherit an ignored SIGINT, and would hand it on to what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# streamlogctl, in this process or started by it, never sees the developer's own profiles. Below a file there can be
# none: a test of them names a file of its own.
os.environ["STREAMLOG_PROFILES"] = os.path.join(__file__, "profiles.toml")
os.environ.pop("STREAMLOG_PROFILE", None)

# No deadlines: they would measure the load of the machine. Hangs are detected by pytest's --timeout, see below.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


# pytest's --timeout raises an exception in the test that hangs, and asyncio's tasks and callbacks keep exceptions for
# later. A test that goes on all the same ends the process; pytest-xdist says which one it was, and goes on.
SWALLOWED_S: Final = 60

STDERR: Final = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # while a test runs, 2 is what pytest captures


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> Generator[None, object, object]:
    faulthandler.dump_traceback_later(settings.timeout + SWALLOWED_S, exit=True, file=item.config.stash[STDERR])
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> Generator[None, object, object]:
    faulthandler.cancel_dump_traceback_later()
    return (yield)


def pytest_enter_pdb() -> None:
    faulthandler.cancel_dump_traceback_later()
