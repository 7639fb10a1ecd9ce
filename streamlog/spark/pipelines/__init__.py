"""The pipelines that ship: programs of one or more queries, run until they are stopped, resumed from their checkpoint.

log-counts    lines of logs -> counts by window, level and component -> a topic, Parquet
archive       topics -> Parquet, by topic and day
backfill      Parquet -> a topic

streamlogctl pipeline run archive --conf topics=orders --conf path=/data/orders --conf checkpoint=/data/state
spark-submit .../streamlog/spark/pipelines/submit.py archive --conf bootstrap.servers=host:9092 --conf ...

settings    what they are told;  running    starting, progress, signals, the end;  explain    why one has failed
"""
