"""The installed pyspark before its archive of sources in the path.

Spark gives each Python process `$SPARK_HOME/python/lib/pyspark.zip` first in the path: sources, which each process
compiles for half a second. And in each process it invalidates the caches of importers, upon which those of an archive
read its directory again, six times over: 0.2 s. Where pip has installed Spark, SPARK_HOME is that pyspark, compiled.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping, MutableSequence
from typing import Any, Final

_ARCHIVE: Final = "/python/lib/pyspark.zip"
_PACKAGE: Final = "/pyspark"


def prefer_compiled(path: MutableSequence[str], importers: MutableMapping[str, Any]) -> None:
    """Removes the archive from the path, and its importers from those of sys.path_importer_cache, if the first pyspark
    behind it is the installation that it belongs to.
    """
    for place, archive in enumerate(path):
        if archive.endswith(_ARCHIVE):
            behind = [f"{other}{_PACKAGE}" for other in path[place + 1 :] if not other.endswith(".zip")]
            installed = next((one for one in behind if os.path.exists(f"{one}/__init__.py")), None)
            if installed is not None and _same(f"{installed}{_ARCHIVE}", archive):
                del path[place]
                for entry in [one for one in importers if one.startswith(archive)]:
                    del importers[entry]
            return


def _same(one: str, other: str) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)
