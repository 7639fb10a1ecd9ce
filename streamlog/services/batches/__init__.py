"""streamlog.v1.Batches: record batches straight to and from partition leaders.

service                             the methods
produce, produce_stream             batches in
produce_results                     the result of one partition
traced_appends                      spans of its batches
transaction_verification            adds the partition to the transaction before its first batch is appended
fetch, fetch_stream                 batches out; partition_fetch: one partition of either
partition_leader, offsets           the leader of a partition as requests name it; offsets by timestamp and epoch
producer_ids                        InitProducerId
metadata, watch_metadata            the metadata image for clients, once and as a stream
watched_metadata                    what changed since when, for all streams of the node
"""
