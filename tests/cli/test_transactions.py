"""`streamlogctl transaction`: what is asked, and what is refused before anybody is."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from streamlog.cli.main import main


@pytest.mark.parametrize(
    "arguments",
    [
        ["abort"],
        ["abort", "x", "--partition", "t-0", "--producer-id", "1"],
        ["abort", "--partition", "t-0"],
        ["abort", "x", "--producer-id", "1"],
        ["describe"],
        ["list", "--state", "sleeping"],
        ["find-hanging", "--open-for-ms", "-1"],
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["transaction", *arguments])
    assert result.exit_code == 2, result.output
    assert "Usage:" in result.output
