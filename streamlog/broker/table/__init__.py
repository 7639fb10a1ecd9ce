"""The partition table: which replicas stand on this node, and their roles.

replicas                    the table; follows the metadata
replica                     one partition: from what is assigned to what there is
replica_creations           when the logs of new replicas are created
partition_metadata          `partition.metadata`: the topic id of a log
high_watermark_checkpoint   `replication-offset-checkpoint`
offline_reports             replicas on failed disks, reported to the controller
lag_reviews                 when the ISRs of all leaders are reviewed
settings_by_topic           the topics' settings as they apply now
log_moves                   replicas that move to another log directory
deleted_records             the log start, moved at a client's request
log_upkeep                  retention, compaction and scrubbing of a log directory
replica_state, log_dirs, open_transactions      what a replica, a directory, a log has: for elections and operators
"""
