"""From records to encoded batches, bounded in memory.

accumulator, buffer_memory      the records that are not acknowledged, and the bound on their bytes
topic_table                     the topics it writes to: for each partition a queue and an open batch
pending_records, many_records   records whose topic is not known yet; the columns of `send_many`
producer_batch, wire_batch      batches that accumulate records, and their encoded form
identities                      producer ids and epochs in a node's responses
batch_contexts                  trace contexts of a batch's records
partition_queue                 the batches of one partition in order
late_records_log                warnings while records are not acknowledged
"""
