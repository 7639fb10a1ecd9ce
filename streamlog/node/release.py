"""The release that this is. pyproject.toml takes it from here."""

from __future__ import annotations

from typing import Final

RELEASE: Final = "0.1.0"
