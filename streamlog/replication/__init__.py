"""A partition's replication at its leader and its followers: high watermark, ISR, epochs (SEMANTICS 1, 2, 3, 5).

Pure decisions over a log: no network, no quorum, no timers. The node passes events in (positions of followers, a
finished sync, changed metadata) with the time, and carries out what is returned (bytes to send, a proposed ISR).

    leader     `leader.PartitionLeader`: appends, counts who has what, moves the high watermark, decides on the ISR
    follower   `follower.PartitionFollower`: appends batches, truncates to the common history, reports its ackable end
    isr        the in-sync replicas, and what is proposed
    joining    whether the end of a follower's log equals the leader's
    replica_log    what both need of a log

For one record with acks=all:

    append -> written -> sent to followers -> synced here, synced there -> positions reported
           -> high watermark passes it -> acknowledged, and readable
"""
