"""The home of our sessions: links to all of Spark, and a folder in the place of its archive of Python sources."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest.mock import patch

import pytest

from streamlog.spark.runtime.spark_home import use_compiled_pyspark


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """What pip has made of pyspark, as far as it matters here."""
    home = tmp_path / "site-packages" / "pyspark"
    for name in ("bin", "jars", "python/lib"):
        (home / name).mkdir(parents=True)
    for name in ("__init__.py", "jars/spark.jar", "python/lib/pyspark.zip", "python/lib/py4j-src.zip"):
        (home / name).touch()
    spec = ModuleSpec("pyspark", None, origin=str(home / "__init__.py"))
    with patch("importlib.util.find_spec", return_value=spec):
        yield home


def test_all_is_there_and_pyspark_is_no_archive(installed: Path, tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    use_compiled_pyspark(environ, "local[2]")
    home = Path(environ["SPARK_HOME"])
    assert (home / "jars" / "spark.jar").exists()
    assert (home / "python" / "lib" / "pyspark.zip" / "pyspark" / "__init__.py").exists()
    assert (home / "python" / "lib" / "py4j-src.zip").is_file()
    again = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    use_compiled_pyspark(again, "spark://h:7077")
    assert again == environ
    (installed / "sbin").mkdir()
    del again["SPARK_HOME"]
    use_compiled_pyspark(again, "local[2]")
    assert (Path(again["SPARK_HOME"]) / "sbin").exists(), "another installation has another home"
    assert len(list((tmp_path / "cache" / "streamlog").iterdir())) == 2, "nothing half made is left"


def test_a_users_choice_is_kept(installed: Path, tmp_path: Path) -> None:
    chosen = {"XDG_CACHE_HOME": str(tmp_path), "SPARK_HOME": "/opt/spark"}
    use_compiled_pyspark(chosen, "local[2]")
    assert chosen["SPARK_HOME"] == "/opt/spark"


def test_not_where_it_would_not_do(installed: Path, tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    use_compiled_pyspark(environ, "yarn")
    (tmp_path / "streamlog").touch()
    use_compiled_pyspark(environ, "local[2]")
    (installed / "python" / "lib" / "pyspark.zip").unlink()
    (tmp_path / "streamlog").unlink()
    use_compiled_pyspark(environ, "local[2]")
    assert "SPARK_HOME" not in environ
