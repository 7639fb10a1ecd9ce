"""Each event of a node has a message, which names only fields that the event has."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamlog
from streamlog.daemon.logs.event_messages import DEBUG_EVENTS, DETAILS, SENTENCES, WARNINGS

PROBES = ("probe", "_probe")


def reported() -> Iterator[tuple[str, set[str], str]]:
    """(event, its fields, where): each place that reports one by its name."""
    root = Path(streamlog.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name not in PROBES:
                continue
            fields = {one.arg for one in node.keywords if one.arg is not None}
            for event in ast.walk(node.args[0]):  # one of two, where it depends
                if isinstance(event, ast.Constant) and isinstance(event.value, str):
                    yield event.value, fields, f"{path.relative_to(root)}:{node.lineno}"


REPORTED = list(reported())


@pytest.mark.parametrize(("event", "fields", "where"), REPORTED, ids=[f"{one[0]}-{one[2]}" for one in REPORTED])
def test_an_event_has_a_message_of_its_fields(event: str, fields: set[str], where: str) -> None:
    assert event in SENTENCES, f"{where}: add what an operator reads"
    named = {name for _, name, _, _ in string.Formatter().parse(SENTENCES[event]) if name}
    assert named <= fields, where


def test_there_are_no_others() -> None:
    """No message, warning or detail is of an event that is not reported."""
    events = {event for event, _, _ in REPORTED}
    assert len(events) > 50
    assert (SENTENCES.keys() | WARNINGS | DETAILS | DEBUG_EVENTS.keys()) <= events
