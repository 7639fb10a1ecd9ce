"""The producer: records in, batches out, acknowledged with their offsets.

async_producer                  what an asyncio program holds: start, flush, close, transactions; with its bases
waiting_sends                   `enqueue` and `send_many`, which wait for free bytes; `send` is in batches/accumulator
flushing                        flush, and the errors that it raises
sync_producer                   what a program without an event loop holds
threaded_producer, short_ways   its client, and the short ways of its `send`
sent_records                    what it returns
given_records                   what a caller gives to `send`, checked
producer_rules                  its settings, resolved
producer_topics, partitioner    the topics it writes to; which partition a record goes to
batches/                        from records to encoded batches, bounded in memory
delivery, produce_link          delivery to the leaders, and the results
"""
