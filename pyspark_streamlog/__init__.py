"""Makes format("streamlog") known to Spark: it looks for DefaultSource in packages whose name begins with pyspark_."""

from streamlog.spark.data_source import DefaultSource

__all__ = ["DefaultSource"]
