"""What a launcher sends to the fork server."""

from __future__ import annotations

import runpy
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.spark.launcher.start import QUIET, QUIET_DAEMON, Start

TEXTS = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"])) | st.just("\udcff")
NAMES = TEXTS.filter(lambda name: name and "=" not in name)
STARTS = st.builds(
    lambda module, arguments, environment, programs: Start(module, arguments, environment, programs=programs),
    TEXTS,
    st.lists(TEXTS),
    st.dictionaries(NAMES, TEXTS),
    TEXTS,
)


@given(STARTS)
def test_it_arrives_as_it_was(start: Start) -> None:
    assert vars(Start.decode(start.encode())) == vars(start)


@given(STARTS, st.integers(1, 40))
def test_a_part_of_it_is_refused_or_complete(start: Start, cut: int) -> None:
    """Where it ends between two variables, it is the start of another process: messages are not divided."""
    whole = start.encode()
    part = whole[:-cut]
    try:
        assert Start.decode(part).encode() == part
    except ValueError:
        return
    assert part.endswith(b"\0")


@pytest.mark.parametrize("count", ["-1", "3", "x", ""])
def test_a_count_of_arguments_that_is_none_is_refused(count: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|cut short"):
        Start.decode(f"/bin\0pyspark.daemon\0{count}\0one\0A=b\0".encode())


def test_of_a_variable_that_is_given_twice_the_first_counts() -> None:
    assert Start.decode("\0".join(["/bin", "pyspark.daemon", "0", "A=1", "A=2", ""]).encode()).environment == {"A": "1"}


@pytest.mark.parametrize(
    ("module", "variables", "runs"),
    [
        ("pyspark.daemon", {QUIET: "1"}, QUIET_DAEMON),
        ("pyspark.daemon", {}, "pyspark.daemon"),
        ("pyspark.worker", {QUIET: "1"}, "pyspark.worker"),
    ],
)
def test_a_daemon_is_quiet_where_that_is_asked(
    monkeypatch: pytest.MonkeyPatch, module: str, variables: dict[str, str], runs: str
) -> None:
    run: list[str] = []
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(runpy, "run_module", lambda name, **_: run.append(name))
    Start(module, ["one"], variables, programs="/bin").run()
    assert (run, sys.argv) == ([runs], [runs, "one"])
