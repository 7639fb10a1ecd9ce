"""streamlog.v1.Records: produce and consume for clients that know neither partitions nor leaders.

service                                      the methods
publish, publish_stream, stream_order        records to batches, to whoever leads their partitions
publish_transactions                         PublishStream with a transactional id
partition_choice, producer_token             which partition; what makes a repeated Publish exact
routed_writes                                a batch to its leader, here or on another node
subscribe, subscribed_partition, feeds                 streams of records of chosen partitions, from all their leaders
consume, sent_records                        streams of records of a group
"""
