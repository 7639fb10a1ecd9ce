"""The log on disk: Kafka's bytes, group commit, recovery, retention, compaction.

Theory of operation
- A *log directory* (`directory.LogDirectory`) contains partitions; one process owns it, by a lock. It goes offline as a
  whole at its first failed write or sync, and stays so until the node restarts.
- A *log* (`log.Log`) is one partition: a list of contiguous segments. Only the last one, the active segment, is
  written. Appending is synchronous and reaches the page cache; it promises nothing.
- *Group commit* (`group_commit.GroupCommit`) makes it durable: one sync at a time for a directory covers all that
  was written before it. Records below a log's `ackable_end` may be acknowledged and replicated from.
- The *recovery point* is the offset below which the log is durable, as of the last checkpoint. After an unclean stop
  the segments at and above it are scanned, checked and re-indexed (`recovery`). Indexes, epoch table and producer
  snapshots are derived from the batches; they are durable before the recovery point passes them, never before.

What is durable, and when
    batches              at the group commit that covers them, with the names of their files
    .index, .timeindex   before the recovery point passes the end of their segment; rebuilt otherwise
    leader epochs        before the recovery point passes their start; rebuilt from the batches otherwise
    producer snapshots   as the indexes; otherwise an older one is loaded and the batches after it are read
    log start offset     at its checkpoint, which is written before retention deletes segments

Where it is
    log             one partition's log: append, truncate, read; derived state, group commit
    segments        a segment's files and indexes
    producers       state of idempotent and transactional producers
    recovery        opening a log: clean, or by a scan
    integrity       damage: found in the background, repaired
    cleaning        retention, compaction
    directories     the logs of one disk, and of all
    files           small files and names
    log_config      settings of one log
    dump            what `streamlogctl dump` prints
"""
