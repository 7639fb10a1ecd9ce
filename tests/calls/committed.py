"""The committed figures, and what differs from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.calls.paths import Found

FILE: Final = Path(__file__).with_name("calls.json")
TOLERANCE: Final = 0.02
PYTHONS: Final = range(0x030B03F0, 0x030C0000)
"""The figures are of 3.11 from 3.11.3 on: later versions inline comprehensions, and call fewer functions; the releases
before need timeouts of our own.
"""


def committed() -> Found:
    found: Found = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def write(found: Found) -> None:
    FILE.write_text(json.dumps(found, indent=2) + "\n")


def changes(before: Found, now: Found) -> list[str]:
    """One line for each figure that has changed by more than the tolerance, in either direction, or is missing."""
    keys = {(path, role) for found in (before, now) for path in found for role in found[path]}
    lines = []
    for path, role in sorted(keys):
        old, new = before.get(path, {}).get(role), now.get(path, {}).get(role)
        if old is None or new is None:
            lines.append(f"{path}, {role}: {old} committed, {new} now")
        elif abs(new - old) > TOLERANCE * old:
            lines.append(f"{path}, {role}: {old} calls a record committed, {new} now")
    return lines
