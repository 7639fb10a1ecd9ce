"""Reading: planning at the driver, ranges of offsets to Arrow batches on executors.

batch_reader, stream_reader    Spark's interfaces
starts, planning               from options to offsets; from offsets to ranges
cluster_offsets                ends of partitions, and the wait for records
task_ranges, range_reader      what one task reads
rows, schema                   record batches as Arrow batches, and their columns
"""
