"""What is derived from the rates of a group."""

from __future__ import annotations

import pytest

from streamlog.console.collection.figures import GroupFigures
from streamlog.console.widgets.formats import catch_up


@pytest.mark.parametrize(
    ("lag", "committed", "incoming", "said"),
    [
        (0, 0.0, 400.0, "now"),
        (6000, 500.0, 400.0, "60 s"),
        (1200, 50.0, 0.0, "24 s"),
        (1320, 400.0000001, 400.0, "keeps pace"),  # with the lag of its commit interval
        (1320, 500.0, 400.0, "keeps pace"),
        (1320, 370.0, 400.0, "keeps pace"),
        (132_000, 400.0000001, 400.0, "does not shrink"),
        (132_000, 403.0, 400.0, "does not shrink"),
        (1320, 300.0, 400.0, "does not shrink"),
        (1320, 0.0, 0.0, "does not shrink"),
    ],
)
def test_when_a_group_has_caught_up(lag: int, committed: float, incoming: float, said: str) -> None:
    assert catch_up(GroupFigures({"orders": lag}, committed, incoming)) == said
