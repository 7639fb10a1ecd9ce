"""Print the notes of a release: its section of CHANGELOG.md.

python tools/release_notes.py            of this release (streamlog/release.py)
python tools/release_notes.py 0.1.0      of another one
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from streamlog.release import RELEASE  # noqa: E402  of this checkout, not of what is installed

_HEADING: Final = re.compile(r"^## \[([^\]]+)\](?: - \d{4}-\d{2}-\d{2})?$", re.MULTILINE)


def sections(changelog: str) -> dict[str, str]:
    """Release -> its text, newest first."""
    headings = list(_HEADING.finditer(changelog))
    ends = [heading.start() for heading in headings[1:]] + [len(changelog)]
    return {heading[1]: changelog[heading.end() : end].strip() for heading, end in zip(headings, ends, strict=True)}


def main(arguments: list[str]) -> int:
    release = arguments[0] if arguments else RELEASE
    found = sections((ROOT / "CHANGELOG.md").read_text())
    if not found.get(release):
        sys.stderr.write(f"CHANGELOG.md has no notes for {release}; it has {', '.join(found)}\n")
        return 1
    print(f"# streamlog {release}\n\n{found[release]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
