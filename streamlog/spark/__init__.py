"""Spark's source and sink, in Python over the clients: format("streamlog").

    spark.readStream.format("streamlog").option("streamlog.bootstrap.servers", ...).option("subscribe", "orders").load()

Spark calls a data source in processes of its own making: at the driver one that plans and keeps running for a stream's
life, and short-lived ones for the making of writers and for commits; on executors one for each task slot, used again
by later tasks. Nothing is shared between them but what travels: options, ranges of offsets, messages of writers.

    driver     source                DefaultSource: options and schema are checked, readers and writers made
               cluster               what is there: partitions, ends, offsets by time; the wait for news
               starts, planning      from where to where, and in which tasks        (pure; offsets: their values)
               stream_reader, batch_reader
    executor   reading, rows         a range of offsets as Arrow batches, from the bytes of record batches
               sink_task             rows into a prepared transaction
    driver     sink_commit, sink_log the micro-batch decided once, its transactions completed

Exactly once, read: a range is the same whenever it is read, and all of it is in Spark's log before it is read first
(`stream_reader`). Written: `sink_commit` has the protocol.

`java` and `session` find a Java and make a session where there is none; `pipelines` are programs that ship.

pyspark and pyarrow are imported by the modules that Spark loads, and by nothing else of streamlog.
"""
