"""numpy, loaded when the first array is made.

It is a fifth of what loading a node costs, and 10 MB. A node makes arrays where it looks into records, which
is rare beside carrying them; most commands of `streamlogctl` never do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["np"]


class _Numpy:
    """A name costs its first use one call, the later ones nothing: it becomes an attribute. Safe among threads."""

    def __getattr__(self, name: str) -> object:
        import numpy

        value: object = getattr(numpy, name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy as np
else:
    np = _Numpy()
