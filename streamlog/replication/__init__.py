"""A partition as its leader and as its followers see it: high watermark, ISR, epochs (SEMANTICS 1, 2, 3, 5).

Pure decisions over a log: no network, no quorum, no timers. The node tells what came (positions of followers, a sync's
end, the metadata's word) with the time, and carries out what is answered (bytes to send, a proposal for the quorum).

    leader     `leader.PartitionLeader`: appends, counts who has what, moves the high watermark, decides on the ISR
    follower   `follower.PartitionFollower`: appends what comes, truncates to what both have, reports its ackable end

What follows what, for one record with acks=all:

    append -> written -> sent to followers -> synced here, synced there -> positions come back
           -> high watermark passes it -> acknowledged, and readable
"""
