"""A home for Spark whose Python is compiled.

Spark starts its Python processes with `$SPARK_HOME/python/lib/pyspark.zip` in front of everything. That archive has
sources alone, so each process compiles pyspark anew, which a stream's source, a process of its own for each query, pays
with one to two seconds before the first micro-batch. So our sessions run from a directory in the user's cache that is
Spark's, by symbolic links, but for a folder in the place of the archive: in it is pyspark as pip has installed it.

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
# Others take what they send to their machines from the home.
_MASTERS: Final = ("local", "spark:")


def use_compiled_pyspark(environ: MutableMapping[str, str], master: str) -> None:
    """Set SPARK_HOME for a session that is about to start. Nothing where somebody has chosen one, where there is no
    such archive, or where the directory cannot be made.
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
        return  # slower, and right all the same


def _cache(environ: MutableMapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "streamlog"


def _linked(installed: Path, cache: Path) -> Path:
    """The directory for this installation, made where it is not there, or is not what it should be any more."""
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
