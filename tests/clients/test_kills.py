"""Each node is killed once under clients of all languages; `python -m tests.clients.kills` does so for five minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients import kills
from tests.clients.builds import LANGUAGES, why_not

pytestmark = [pytest.mark.process, pytest.mark.clients, pytest.mark.timeout(1800)]


async def test_no_error_reaches_a_program_and_nothing_is_lost_or_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    languages = ["python", *(name for name in LANGUAGES if why_not(name) is None)]
    summary = await kills.run(tmp_path / "cluster", 0, languages)
    with capsys.disabled():
        print(f"\n{summary}")
