"""The installed pyspark before its archive in the path, and only its own."""

from __future__ import annotations

from pathlib import Path

from streamlog.spark.launcher.compiled import prefer_compiled

ARCHIVE = "python/lib/pyspark.zip"
JAR = "jars/spark-core_2.13-4.3.0.jar"


def _installed(site: Path) -> Path:
    """What pip has made of pyspark, as far as it matters here."""
    home = site / "pyspark"
    (home / ARCHIVE).parent.mkdir(parents=True)
    (home / JAR).parent.mkdir()
    for name in ("__init__.py", ARCHIVE, JAR, "python/lib/py4j-src.zip"):
        (home / name).touch()
    return home


def test_an_installations_own_archives_are_left_out(tmp_path: Path) -> None:
    home = _installed(tmp_path / "site-packages")
    archive, py4j, jar = (str(home / name) for name in (ARCHIVE, "python/lib/py4j-src.zip", JAR))
    other = str(home / "jars/graphframes.jar")
    path = ["/work", archive, py4j, jar, other, "/usr/lib/python3.11", str(home.parent)]
    importers = dict.fromkeys([*path, f"{archive}/pyspark", f"{jar}/pyspark_streamlog"])
    prefer_compiled(path, importers)
    assert path == ["/work", py4j, other, "/usr/lib/python3.11", str(home.parent)]
    assert list(importers) == path, "each would read the archive's directory again in each process"


def test_another_spark_has_its_own_pyspark(tmp_path: Path) -> None:
    """SPARK_HOME is not where pip has installed, possibly another version."""
    home, other = _installed(tmp_path / "site-packages"), _installed(tmp_path / "opt")
    path = [str(other / ARCHIVE), str(other / JAR), str(home.parent)]
    prefer_compiled(path, {})
    assert path == [str(other / ARCHIVE), str(other / JAR), str(home.parent)]


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
