"""How Spark writes the files of a checkpoint on a local file system.

The default is Hadoop's FileContext, which sets each file's mode by starting a program (chmod) where Hadoop's native
libraries are not installed (pip installs none): some 50 ms a file, two thirds of a micro-batch of few rows. Spark's
alternative, Hadoop's FileSystem, writes and renames the same files without starting a program. On a distributed file
system the default is kept: only its rename prevents two drivers from writing the same file (on a local one, both check
first and rename then).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_PLAIN: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def write_plain_files(spark: SparkSession, checkpoint: str) -> None:
    """For queries started afterwards, with checkpoints on `checkpoint`'s file system. A user's setting is kept."""
    if spark.conf.get(MANAGER, None) is not None:
        return
    jvm, java_session = spark._jvm, spark._jsparkSession
    if jvm is None:  # Spark Connect: the files are on the server
        return
    conf = java_session.sessionState().newHadoopConf()
    file_system = jvm.org.apache.hadoop.fs.Path(checkpoint).getFileSystem(conf)
    if file_system.getScheme() == "file":
        spark.conf.set(MANAGER, _PLAIN)
