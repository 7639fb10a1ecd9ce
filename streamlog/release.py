"""The release that this is, in one place: pyproject.toml takes it from here."""

from typing import Final

RELEASE: Final = "0.1.0"
