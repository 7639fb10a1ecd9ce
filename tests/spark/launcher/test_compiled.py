"""The installed pyspark before its archive in the path, and only its own."""

from __future__ import annotations

from pathlib import Path

from streamlog.spark.launcher.compiled import prefer_compiled

ARCHIVE = "python/lib/pyspark.zip"


def _installed(site: Path) -> Path:
    """What pip has made of pyspark, as far as it matters here."""
    home = site / "pyspark"
    (home / ARCHIVE).parent.mkdir(parents=True)
    for name in ("__init__.py", ARCHIVE, "python/lib/py4j-src.zip"):
        (home / name).touch()
    return home


def test_an_installations_own_archive_is_left_out(tmp_path: Path) -> None:
    home = _installed(tmp_path / "site-packages")
    archives = [str(home / ARCHIVE), str(home / "python/lib/py4j-src.zip")]
    path = ["/work", *archives, "/usr/lib/python3.11", str(home.parent)]
    importers = dict.fromkeys([*path, f"{archives[0]}/pyspark"])
    prefer_compiled(path, importers)
    assert path == ["/work", archives[1], "/usr/lib/python3.11", str(home.parent)]
    assert list(importers) == path, "each would read the archive's directory again in each process"


def test_another_spark_has_its_own_pyspark(tmp_path: Path) -> None:
    """SPARK_HOME is not where pip has installed, possibly another version."""
    home, other = _installed(tmp_path / "site-packages"), _installed(tmp_path / "opt")
    path = [str(other / ARCHIVE), str(home.parent)]
    prefer_compiled(path, {})
    assert path == [str(other / ARCHIVE), str(home.parent)]


def test_nothing_is_left_out_where_nothing_is_installed(tmp_path: Path) -> None:
    path = [str(tmp_path / "spark" / ARCHIVE), str(tmp_path)]
    prefer_compiled(path, {})
    assert path == [str(tmp_path / "spark" / ARCHIVE), str(tmp_path)]


def test_only_the_first_pyspark_counts(tmp_path: Path) -> None:
    """A folder of the user's before it is what Python would import."""
    home = _installed(tmp_path / "site-packages")
    mine = tmp_path / "mine"
    (mine / "pyspark").mkdir(parents=True)
    (mine / "pyspark" / "__init__.py").touch()
    path = [str(home / ARCHIVE), str(mine), str(home.parent)]
    prefer_compiled(path, {})
    assert path == [str(home / ARCHIVE), str(mine), str(home.parent)]
