"""The consumer: partitions that its user assigns, or those that its group assigns (`streamlog.client.groups`).

async_consumer, sync_consumer        what a program holds
assigned_reader                      reads assigned partitions, without a group
start_positions                      what a caller gives for a partition and for where to start
consumer_rules                       its settings, resolved
fetcher, fetch_link                  where each partition is read; the stream from one leader
partition_reader, offset_finder      one partition's position and prefetched batches; offsets by bound or time
consumer_records                     what is returned: records, or whole batches
aborted, corrupt_batches             batches that are not returned: aborted transactions, undecodable ones
log_truncation                       a leader whose log has diverged from what was read
unfetched_watch                      warnings while partitions are not fetched
decoded_polls                        the polls of a consumer with deserializers
"""
