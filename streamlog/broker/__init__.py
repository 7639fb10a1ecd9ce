"""The data plane of one node: its replicas, what clients do with them, and how nodes copy from each other.

append/                 a producer's batches into the log of a leader: one pipeline
leading/                a leadership: ISR, high watermark, reads; the streams that serve followers
following/              the streams on which this node copies from leaders
repair/                 damaged ranges fetched from other replicas; digests to compare replicas
table/                  the partition table: which replicas are here, and in which role
leader_progress         what readers of a leader may see, and who is notified of changes
replica_wire            the messages of a replication stream
throttle                bytes a second for replicas that are not in sync
topic_settings          a topic's configuration, as its replicas need it
producer_id_blocks      ids for idempotent producers

Theory of operation
- `table.replicas.Replicas` is the partition table. It follows the metadata: what the image assigns to this node, the
  table creates here. It is the only owner of `table.replica.Replica`, one state machine a partition:

      absent --assigned--> opening --log opened--> idle | leading | following <--> each other, by the image
                                                     |--directory failed, damage in a leader--> offline
      any --unassigned, topic deleted--> closing --renamed to -delete--> absent

  What the image ends, ends at once and synchronously: a former leader appends nothing from that moment. What must wait
  (creating a log, restoring producers, truncating, removing) is done by one task a partition; after each wait it looks
  up again what is assigned. So there is never more than one transition of a partition.
- `leading.leader_replica.LeaderReplica` is one leadership, `following.follower_replica.FollowerReplica` one
  leader epoch that is followed. Each ends with its leader epoch; later calls raise its error.
- Transactions: a leader appends the batch that opens one only after the coordinator has confirmed it
  (`append.verification`), and the marker that ends it when the coordinator sends it. Readers of committed records stop
  at the last stable offset, which the log computes; followers compute theirs from the same batches.
- Between nodes: the leader serves streams of batches (`leading.replication_service`), followers request them
  (`following.follower_links`); `leading.isr_changes` carries the leaders' proposed ISRs to the controller.

What is durable
    topic id of a log          `partition.metadata`, before its first record: a recreated topic never gets an old log
    high watermarks            `replication-offset-checkpoint`, periodically: an old value costs a wait, no record
    everything else            in the logs (streamlog.storage) or in the metadata quorum
"""
