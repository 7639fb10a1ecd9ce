"""numpy, loaded when the first array is made.

It takes a fifth of the load time of a node, and 10 MB. A node makes arrays only where it decodes records, which is
rare; most commands of `streamlogctl` never do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["np"]


class _Numpy:
    """The first use of a name costs one call, later ones nothing: it becomes an attribute. Thread-safe."""

    def __getattr__(self, name: str) -> object:
        import numpy

        value: object = getattr(numpy, name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy as np
else:
    np = _Numpy()
