"""When a view of the alarms is drawn again: a button that is drawn again loses the keyboard's focus."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from msgspec.structs import replace

from streamlog.console.alarms.conditions.assessments import Assessment, Breach
from streamlog.console.alarms.evaluation import AlarmState, AlarmStatus, evaluate
from streamlog.console.alarms.rules import AlarmRule, RuleKind
from streamlog.console.pages.alarms import VIEWS, shown_state

RULE = AlarmRule(name="down", kind=RuleKind.NODE_DOWN, for_s=20)
SETTINGS = object()


def pending() -> AlarmState:
    found = evaluate(
        {},
        [(RULE, Assessment({("node", "2"): Breach(1, "Node 2 is down.")}, lambda _: False))],
        [],
        at_s=1.0,
        passed_s=1.0,
    )
    return next(iter(found.alarms.values()))


def engine(*alarms: AlarmState, **changed: Any) -> Any:
    defaults = {
        "settings": SETTINGS,
        "rule_problems": (),
        "problem": "",
        "queued": 0,
        "sync_problems": {},
        "book": SimpleNamespace(silences=()),
        "alarms": lambda status: [one for one in alarms if one.status is status],
    }
    return SimpleNamespace(**(defaults | changed))


@pytest.mark.parametrize("view", VIEWS)
def test_the_time_of_a_pending_alarm_draws_nothing_again(view: str) -> None:
    first = pending()
    assert shown_state(engine(first), view) == shown_state(engine(replace(first, held_s=9.0)), view)


def test_each_view_is_drawn_again_for_what_it_shows() -> None:
    first = pending()
    firing = replace(first, status=AlarmStatus.FIRING)
    changes = {
        "Now": engine(firing),
        "History": engine(firing),
        "Rules": engine(first, rule_problems=("x",)),
        "Silences": engine(first, book=SimpleNamespace(silences=("s",))),
        "Channels": engine(first, queued=1),
    }
    assert set(changes) == set(VIEWS)
    for view, changed in changes.items():
        assert shown_state(engine(first), view) != shown_state(changed, view), view
    lags = replace(firing, summary="more")
    assert shown_state(engine(firing), "Now") != shown_state(engine(lags), "Now")
    for view in ("History", "Rules", "Silences", "Channels"):
        assert shown_state(engine(firing), view) == shown_state(engine(lags), view), view
