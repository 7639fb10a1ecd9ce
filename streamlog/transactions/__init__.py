"""Transactions: the coordinator's decisions, as pure functions of records of `__transaction_state` (SEMANTICS 7).

    markers    what the partitions are told
    records    what the coordinator remembers of one transactional id, in Kafka's bytes (codec)
    state      replay of records
    lifecycle  begin, add partitions, end, mark, expire: command and state in, records and answer out

Theory of operation
- A transactional id has one producer id and epoch at a time. `init` raises the epoch, and fences whoever had it before.
- A partition's leader asks the coordinator before it appends the first batch of a transaction; the coordinator writes
  down the partition, or refuses. So every partition that may hold records of a transaction is in the coordinator's log
  before the records are in the partition's, and a transaction that is over takes no partition any more.
- The end is decided by one record (PREPARE_COMMIT or PREPARE_ABORT). From then on nothing can change the outcome:
  whoever is the coordinator writes the markers, again and again, until every partition has them, and then COMPLETE.
- Every end raises the epoch (KIP-890): markers carry the new one, so a partition that has its marker refuses what is
  late of the transaction, and the next transaction has an epoch of its own.
- The next transaction may be open while the markers are written: each partition takes nothing of it before its marker.
- A transaction that is open longer than its time-out is aborted, unless its producer answers to a coordinator of its
  own (two-phase commit, KIP-939): it stays until that one says.
"""
