"""Coordinators: state machines whose log is a partition of an internal topic, on its leader (SEMANTICS 7, 9).

Theory of operation
- A *shard* (`GroupShard`, `TransactionShard`) is the state of one partition of `__consumer_offsets` or
  `__transaction_state` while this node leads it; its log is a `shard_log.ShardLog`:

      loading --all replayed--> active --leadership ended, or an unreadable record--> ended

  Loading starts once the high watermark has reached what former leaders wrote, so that nothing is replayed that may
  still be truncated. Until then commands are refused with COORDINATOR_LOAD_IN_PROGRESS.
- A command is decided at once, on the current state; its records are appended and replayed in the same step. The next
  command is therefore decided on records that may not be replicated yet, and every response waits until the high
  watermark has passed everything that was in the log when it was decided. Unreplicated state is never visible to
  clients.
- A new leader has a new shard, built from the log alone. The leader epoch fences the old one: its appends fail.

`shards.Shards` creates and ends the shards as leaderships start and end; `groups.GroupCoordinator` and
`transactions.TransactionCoordinator` are what the services call. The decisions themselves are pure and live elsewhere
(streamlog.groups, streamlog.transactions). `marker_writer` writes the transaction markers to all partitions.

`group_shard` and `transaction_shard` are the shards; `topics` is the cluster's topics as groups see them; `deadlines`
are time-outs of open transactions, `recurring` the partitions that a producer writes to again and again.
"""
