"""The pipelines that ship: programs of one or more queries, which run until stopped and resume from their checkpoint.

log-counts    lines of logs -> counts by window, level and component -> a topic, Parquet
archive       topics -> Parquet, by topic and day
backfill      Parquet -> a topic

streamlogctl pipeline run archive --conf topics=orders --conf path=/data/orders --conf checkpoint=/data/state
spark-submit .../streamlog/spark/pipelines/submit.py archive --conf bootstrap.servers=host:9092 --conf ...

settings    their settings;  running    start, progress, signals, stop;  explain    the reason of a failure
log_counts, archive, backfill    the pipelines
"""
