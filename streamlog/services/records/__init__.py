"""streamlog.v1.Records: produce and consume for clients that know neither partitions nor leaders.

service                                      the methods
publish, publish_stream, stream_order        records made into batches, sent to the leaders of their partitions
publish_transactions                         PublishStream with a transactional id
partition_choice, producer_token             which partition; what makes a repeated Publish idempotent
routed_writes                                a batch to its leader, on this node or another one
subscribe, subscribe_placement, subscribe_delivery, subscribed_partition
                                             streams of records of chosen partitions, from all their leaders
feeds                                        one fetch stream for each of these leaders
consume, sent_records                        streams of records of a consumer group
"""
