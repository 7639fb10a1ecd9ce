"""The release that this is, in one place: pyproject.toml takes it from here."""

RELEASE = "0.1.0"
