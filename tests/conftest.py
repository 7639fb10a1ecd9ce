"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A deadline a draw measures the machine and who else is on it. A hang is pytest's --timeout to find.
settings.register_profile("streamlog", deadline=None)
settings.load_profile("streamlog")
