"""Spark's source and sink, in Python over the clients: format("streamlog").

    spark.readStream.format("streamlog").option("streamlog.bootstrap.servers", ...).option("subscribe", "orders").load()

Spark runs a data source in processes that it starts: at the driver one that plans, for as long as a stream runs, and
short-lived ones that create writers and commit; on executors one for each task slot, reused by later tasks. They share
nothing but what Spark sends between them: options, ranges of offsets, messages of writers.

    data_source, options              DefaultSource: checks options and schema, creates readers and writers
    source/
      driver     cluster_offsets      partitions, end offsets, offsets by time; waits for new records
                 starts, planning     from which offset to which, in which tasks       (pure; `offsets`: the values)
                 stream_reader, batch_reader
      executor   range_reader, rows   a range of offsets as Arrow batches, from the bytes of record batches
    sink/
      executor   task                 rows into a prepared transaction
      driver     commit, decision_log the micro-batch is decided once, its transactions are committed
    runtime/     Java, sessions, Python workers, the event loop
    launcher/    the program that starts Spark's Python processes faster
    pipelines/   programs that ship
    failures     errors for the author of a query

Exactly once, reading: a range has the same records whenever it is read, and is in Spark's log before it is first read
(`source.stream_reader`). Writing: the protocol is in `sink.commit`.

pyspark and pyarrow are imported by the modules that Spark loads, and by nothing else of streamlog.
"""
