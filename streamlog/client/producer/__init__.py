"""The producer: records in, batches out, acknowledged with their offsets.

async_producer                  what an asyncio program holds: start, flush, close, transactions; with its bases
accumulator, waiting_sends      `send`; `enqueue` and `send_many`, which wait for free bytes
flushing                        flush, and the errors that it raises
sync_producer                   what a program without an event loop holds
threaded_producer, short_ways   its client, and the short ways of its `send`
sent_records                    what it returns
producer_rules                  its settings, resolved
topic_table, producer_topics    the topics it writes to: for each partition a queue and an open batch
partitioner, pending_records    which partition a record goes to; records whose topic is not known yet
producer_batch, many_records    batches that accumulate records; the columns of `send_many`
buffer_memory                   the bound on unacknowledged bytes
partition_queue, wire_batch     the batches of one partition in order, and their encoded form
delivery, produce_link          delivery to the leaders, and the results
"""
