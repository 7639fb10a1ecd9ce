"""`make stubs`: what is skipped, and what is a failure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.stubs.__main__ import build_and_use
from tools.stubs.languages import Language
from tools.stubs.work import Failed, Skipped, run


def test_a_missing_toolchain_is_skipped_before_anything_is_built() -> None:
    def build() -> list[Path]:
        raise AssertionError

    language = Language("x", ("sh", "no-such-compiler"), build, lambda server, topic: "")
    with pytest.raises(Skipped, match=r"^no-such-compiler not installed$"):
        build_and_use(language, "127.0.0.1:1")


@pytest.mark.parametrize("said", ["symbol A was not found in B.java", "ENOTFOUND registry.example", ""])
def test_a_build_that_fails_is_a_failure_whatever_it_says(said: str, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="failed with exit code 3") as caught:
        run(sys.executable, "-c", "import sys; print(sys.argv[1]); sys.exit(3)", said, cwd=tmp_path)
    assert said in str(caught.value)
    assert ("a registry of packages did not answer" in str(caught.value)) is ("ENOTFOUND" in said)
