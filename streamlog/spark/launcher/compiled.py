"""The installed pyspark before its archive of sources in the path, and without Spark's jar.

Spark gives each Python process `$SPARK_HOME/python/lib/pyspark.zip` first in the path: sources, which each process
compiles for half a second. Where pip has installed Spark, SPARK_HOME is that pyspark, compiled. The next is the jar of
Spark's core, which holds no Python. And in each process Spark invalidates the caches of importers, upon which those of
archives read their directories again, one importer for each package that was looked for: 0.1 s, most of it the jar's.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping, MutableSequence
    from typing import Any, Final

_ARCHIVE: Final = "/python/lib/pyspark.zip"
_JAR: Final = "/jars/spark-core_"
_PACKAGE: Final = "/pyspark"


def prefer_compiled(path: MutableSequence[str], importers: MutableMapping[str, Any]) -> None:
    """Removes both from the path, and their importers from those of sys.path_importer_cache, if the first pyspark
    behind the archive is the installation that they belong to.
    """
    for place, archive in enumerate(path):
        if archive.endswith(_ARCHIVE):
            behind = [f"{other}{_PACKAGE}" for other in path[place + 1 :] if not other.endswith(".zip")]
            installed = next((one for one in behind if os.path.exists(f"{one}/__init__.py")), None)
            if installed is not None and _same(f"{installed}{_ARCHIVE}", archive):
                jar = archive.removesuffix(_ARCHIVE) + _JAR
                for left_out in [archive, *(one for one in path if one.startswith(jar))]:
                    path.remove(left_out)
                    for entry in [one for one in importers if one.startswith(left_out)]:
                        del importers[entry]
            return


def _same(one: str, other: str) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)
