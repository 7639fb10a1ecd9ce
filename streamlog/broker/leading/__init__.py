"""Partitions that this node leads: what producers, readers and followers do with them.

leader_replica          one leadership of one partition
offset_lookup           offsets by place and by timestamp (ListOffsets)
isr_changes             proposed ISRs on their way to the controller
replication_service     the service that followers connect to
follower_stream         one follower node's stream; follower_slot: one partition on it
leader_traces           traced appends that are not yet synced and replicated
"""
