"""streamlog.v1.Records: produce and consume for clients that know neither partitions nor leaders.

service                                      the methods
publish, publish_stream, stream_order        records made into batches, sent to the leaders of their partitions
publish_transactions                         PublishStream with a transactional id
placement                                    which records, to which partitions
gathering                                    batches of calls that arrive together, appended together
producer_token                               what makes a repeated Publish idempotent
transactional_request                        one request of a transactional PublishStream
routed_writes                                a batch to its leader, on this node or another one
subscribe, subscribe_placement, subscribe_delivery, subscribed_partition
                                             streams of records of chosen partitions, from all their leaders
feeds                                        one fetch stream for each of these leaders
consuming                                    streams of records of a consumer group
"""
