"""Every test of a defect of the library runs on it and on ours."""

from __future__ import annotations

import pytest

from .our_lab import OurLab
from .plain_lab import PlainLab

BOTH = pytest.mark.parametrize(
    ("kind", "shows"), [(PlainLab, True), (OurLab, False)], ids=["untouched library", "ours"]
)
