"""The page of runbooks, as tests walk it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "operations" / "README.md"


def commands(section: str) -> list[list[str]]:
    """Of the section with this heading: the words of each line of code."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^    (streamlogctl .+)$", text, re.MULTILINE)
    return [shlex.split(line)[1:] for line in lines]
