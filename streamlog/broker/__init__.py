"""The data plane of one node: its replicas, what producers and readers do with them, how nodes copy from each other.

Theory of operation
- `replicas.Replicas` is the partition table. It follows the metadata: whatever the image says of a partition that
  this node has, the table makes true here. It is the only owner of `replica.Replica`, one state machine a partition:

      absent --assigned--> opening --log there--> idle | leading | following <--> each other, by the image
                                                     |--directory failed, damage in a leader--> offline
      any --assigned no more, topic deleted--> closing --renamed to -delete--> absent

  What the image ends, ends at once and synchronously: a leader that is one no more appends nothing from that moment.
  What must wait (making a log, restoring producers, cutting damage away, removing) is done by one task a partition;
  after each wait it asks again what is wanted now. So transitions of a partition are never two at a time.
- `leader_replica.LeaderReplica` is one leadership, `follower_replica.FollowerReplica` one time of following: each has
  one leader epoch, and dies with it. Whoever holds one that has died is told so by its errors.
- Transactions: a leader appends the batch that opens one only with the coordinator's word (`verification`), and the
  marker that ends it when the coordinator says so. Readers of committed records stop at the last stable offset, which
  the log knows; so does every follower's, from the same batches. `hanging` tells who holds it.
- Between nodes: the leader's side serves streams of batches, the follower's side (`collaborators.FollowerLinks`)
  asks for them; `collaborators.IsrChanges` carries the leaders' proposals to the controller.

The way of a produce: `Replicas.leader` -> `LeaderReplica.append` (check, stamp, write to the page cache) -> watchers
get the very bytes (follower streams, readers at the tail) -> group commit -> followers' positions -> the high
watermark passes -> `wait_for` is done. No await between check and act on the way, and no look at single records.

What is durable
    topic id of a log          `partition.metadata`, before its first record: a topic made anew never inherits a log
    high watermarks            `replication-offset-checkpoint`, now and then: a former value costs a wait, no record
    everything else            in the logs (streamlog.storage) or in the metadata quorum
"""
