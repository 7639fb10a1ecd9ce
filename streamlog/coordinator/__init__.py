"""Coordinators: state machines whose log is a partition of an internal topic, on its leader (SEMANTICS 7, 9).

Theory of operation
- A *shard* (`shard.Shard`) is one partition of `__consumer_offsets` or `__transaction_state` while this node leads it:

      loading --all replayed--> active --leadership over, or a record that cannot be read--> ended

  Loading begins once the high watermark has reached what former leaders wrote, so that nothing is replayed that may
  yet be cut away. Until then commands are refused with COORDINATOR_LOAD_IN_PROGRESS.
- A command is decided at once, on the state as it is; its records are appended, and replayed in the same step. So the
  next command is decided on what is in the log but perhaps not replicated, and every answer waits until the high
  watermark has passed all that stood in the log when it was decided. What is not replicated nobody has heard of.
- A new leader has a new shard, made from the log alone. The leader epoch fences the old one: it can append nothing.

`shards.Shards` makes and ends the shards as leaderships come and go; `groups.GroupCoordinator` and
`transactions.TransactionCoordinator` are what the services call. The decisions themselves are pure and live elsewhere
(streamlog.groups, streamlog.transactions). `marker_writer` has the ends of transactions written in all partitions.
"""
