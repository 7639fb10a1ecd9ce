"""Transactions: the coordinator's decisions, as pure functions of records of `__transaction_state` (SEMANTICS 7).

    markers    what the partitions' leaders receive
    records    what the coordinator stores for one transactional id, in Kafka's bytes (codec)
    lifecycle  begin, add partitions, end, mark, expire: command and state in, records and answer out

Theory of operation
- A transactional id has one producer id and epoch at a time. `init` raises the epoch and fences the previous producer.
- Before the first batch of a transaction, a partition's leader asks the coordinator to add the partition, which it
  records or refuses. So every partition that may hold records of a transaction is in the coordinator's log before the
  records are in the partition's, and no partition is added to a transaction that has ended.
- The end is decided by one record (PREPARE_COMMIT or PREPARE_ABORT). From then on the outcome cannot change: the
  coordinator, or its successor, writes the markers until every partition has them, and then COMPLETE.
- Every end raises the epoch (KIP-890): markers carry the new one, so a partition with its marker refuses late batches
  of the transaction, and each transaction has its own epoch.
- The next transaction may be open while markers are being written: no partition accepts its records before its marker.
- A transaction that is open longer than its time-out is aborted, unless an external coordinator ends it (two-phase
  commit, KIP-939): it then stays open until that one decides.
"""
