"""A SPARK_HOME with compiled Python code.

Spark starts its Python processes with `$SPARK_HOME/python/lib/pyspark.zip` first in the path. That archive has only
sources, so each process recompiles pyspark; a stream's source, a new process for each query, takes one to two seconds
for it. So our sessions run from a directory in the user's cache with symbolic links to Spark's, where a folder with
pip's compiled pyspark replaces the archive.

    ~/.cache/streamlog/spark-<digest>/bin, jars, ...          -> site-packages/pyspark/bin, jars, ...
                                     /python/lib/pyspark.zip/pyspark -> site-packages/pyspark
                                     /python/lib/py4j-...-src.zip    -> the same of site-packages/pyspark
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

HOME: Final = "SPARK_HOME"
_PYTHON: Final = "python"
_LIBRARY: Final = Path(_PYTHON, "lib")
_ARCHIVE: Final = "pyspark.zip"
# Other masters copy files of SPARK_HOME to their machines.
_MASTERS: Final = ("local", "spark:")


def use_compiled_pyspark(environ: MutableMapping[str, str], master: str) -> None:
    """Sets SPARK_HOME for a session that is about to start, unless the user has set it, the archive does not exist, or
    the directory cannot be created.
    """
    if HOME in environ or not master.startswith(_MASTERS):
        return
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return
    installed = Path(spec.origin).parent
    if not (installed / _LIBRARY / _ARCHIVE).exists():
        return
    try:
        environ[HOME] = str(_linked(installed, _cache(environ)))
    except OSError:
        return  # slower, but correct


def _cache(environ: MutableMapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "streamlog"


def _linked(installed: Path, cache: Path) -> Path:
    """The directory for this installation; created unless it exists."""
    links = {Path(one.name): one for one in installed.iterdir() if one.is_dir() and one.name != _PYTHON}
    links |= {_LIBRARY / one.name: one for one in (installed / _LIBRARY).iterdir() if one.name != _ARCHIVE}
    links[_LIBRARY / _ARCHIVE / "pyspark"] = installed
    names = "\n".join([str(installed), *map(str, sorted(links))])
    home = cache / f"spark-{hashlib.sha256(names.encode()).hexdigest()[:16]}"
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Path(tempfile.mkdtemp(prefix="spark-", dir=cache))
    try:
        for name, target in links.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).symlink_to(target)
        made.rename(home)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not home.is_dir():  # else another process was first
            raise
    return home
