"""State of idempotent and transactional producers, derived from a log's batches.

producer_states            epochs and sequences of each producer id: duplicates, gaps, fencing
unstable_transactions      what holds the last stable offset
markers                    control batches that end a transaction
snapshot_format            .snapshot; snapshot_files: those of a log
state_replay               the state at an offset, restored from a snapshot and the batches after it
transaction_replay         the aborted transactions of a segment, recomputed from its batches
"""
