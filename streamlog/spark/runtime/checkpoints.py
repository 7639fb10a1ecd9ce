"""How Spark writes the files of a checkpoint, where that is on a file system of this machine.

By default through Hadoop's FileContext, which sets each file's mode by starting a program (chmod) where Hadoop's native
libraries are not installed, and pip installs none: some 50 ms a file, two thirds of a micro-batch of few rows. Spark's
other way, through Hadoop's FileSystem, writes and renames the same files and starts nothing. On a file system of many
machines the first one stays: there its rename, and not the other's, keeps two drivers apart (on this machine's both
look first and rename then).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_PLAIN: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def write_plain_files(spark: SparkSession, checkpoint: str) -> None:
    """For queries that are started after it, with checkpoints where `checkpoint` is. What the user has set stays."""
    if spark.conf.get(MANAGER, None) is not None:
        return
    jvm, java_session = spark._jvm, spark._jsparkSession
    if jvm is None:  # Spark Connect: the files are elsewhere
        return
    conf = java_session.sessionState().newHadoopConf()
    file_system = jvm.org.apache.hadoop.fs.Path(checkpoint).getFileSystem(conf)
    if file_system.getScheme() == "file":
        spark.conf.set(MANAGER, _PLAIN)
