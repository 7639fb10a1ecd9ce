"""Which way Spark writes the files of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlog.spark.runtime.checkpoints import MANAGER, write_plain_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def own(spark: SparkSession) -> SparkSession:
    """A session with settings of its own."""
    session = spark.newSession()
    session.conf.unset(MANAGER)
    return session


def manager(spark: SparkSession, folder: str) -> str:
    """Spark's, for that folder: the name of its class."""
    jvm = spark._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    made = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.create(
        jvm.org.apache.hadoop.fs.Path(folder), conf
    )
    return str(made.getClass().getSimpleName())


def test_on_a_file_system_of_this_machine_no_program_is_started(own: SparkSession, tmp_path: Path) -> None:
    assert manager(own, str(tmp_path)) == "FileContextBasedCheckpointFileManager"
    write_plain_files(own, str(tmp_path))
    assert manager(own, str(tmp_path)) == "FileSystemBasedCheckpointFileManager"


def test_elsewhere_and_where_the_user_has_chosen_it_stays(own: SparkSession, tmp_path: Path) -> None:
    write_plain_files(own, "hdfs://127.0.0.1:1/state")
    assert own.conf.get(MANAGER, None) is None
    chosen = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    own.conf.set(MANAGER, chosen)
    write_plain_files(own, str(tmp_path))
    assert own.conf.get(MANAGER) == chosen
