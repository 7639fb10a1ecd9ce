"""The producer: records in, batches out, one promise a batch.

async_producer, sync_producer   what a program holds
producer_rules                  its settings, resolved
topic_table, producer_topics    the topics it writes to, a queue for each partition
partitioner, pending_records    which partition a record goes to; records whose topic is not known yet
producer_batch, many_records    where records gather; buffer_memory bounds them
partition_queue, wire_batch     batches of one partition in order, and their bytes
delivery, produce_link          how batches reach the leaders, and what becomes of them
"""
