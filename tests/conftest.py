"""What all tests share.

Hypothesis draws the same examples in every run, so a change is judged by its own effect, and a failure repeats at once.
`make test-random` draws new ones (HYPOTHESIS_PROFILE=random): a failing example found there is kept as an `@example`.
"""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# Tests that run as a background job of a shell inherit an ignored SIGINT, and would hand it on to what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# streamlogctl, in this process or started by it, never sees the developer's own profiles. Below a file there can be
# none: a test of them names a file of its own.
os.environ["STREAMLOG_PROFILES"] = os.path.join(__file__, "profiles.toml")
os.environ.pop("STREAMLOG_PROFILE", None)

# No deadlines: they would measure the load of the machine. Hangs are detected by pytest's --timeout.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
