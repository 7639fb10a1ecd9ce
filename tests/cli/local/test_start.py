"""How long `local start` waits for nodes, and what it prints meanwhile."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from streamlog.cli.local.start import NOTICE_S, STALLED_S, StartWatch
from streamlog.daemon.local_cluster import LocalNode

NODE = LocalNode(2, Path("cluster/node-2"))
WAITING = {NODE: "does not answer yet", LocalNode(3, Path("cluster/node-3")): "does not answer yet"}


def test_nodes_that_get_further_are_waited_for() -> None:
    watch, now = StartWatch(None, now=1000.0), 1000.0
    for size in range(10):
        now += STALLED_S - 1
        watch.notice(WAITING, size, now)
    watch.notice(WAITING, 3, now + STALLED_S)  # as before
    with pytest.raises(click.ClickException) as error:
        watch.notice(WAITING, 9, now + STALLED_S + 1)
    assert error.value.message == (
        "node 2, 3 is not ready and has made no progress for 120 s: node 2 does not answer yet: check its log, "
        "cluster/node-2/streamlogd.log, or wait longer with --timeout-s."
    )


def test_the_users_limit_holds_whatever_they_do() -> None:
    watch = StartWatch(30.0, now=0.0)
    watch.notice(WAITING, 1, 30.0)
    with pytest.raises(click.ClickException, match="not ready after 30 s: node 2 does not answer yet"):
        watch.notice(WAITING, 2, 31.0)


def test_a_limit_above_the_default_is_waited_for() -> None:
    StartWatch(1_000.0, now=0.0).notice(WAITING, 1, 999.0)


def test_what_is_waited_for_is_printed_now_and_then() -> None:
    watch = StartWatch(None, now=0.0)
    assert watch.notice(WAITING, 1, NOTICE_S - 1) == ""
    text = "Waiting for node 2, 3 for 10 s: node 2 does not answer yet."
    assert watch.notice(WAITING, 1, NOTICE_S) == text
    assert watch.notice({NODE: "does not report as active: 3"}, 1, NOTICE_S + 1) == ""
    assert watch.notice({NODE: "does not report as active: 3"}, 1, 2 * NOTICE_S) == (
        "Waiting for node 2 for 20 s: node 2 does not report as active: 3."
    )
