"""One partition's log: appending, truncating, reading, and the state derived from its batches.

log, config                            the log and its settings
stamping                               what a leader rewrites in a batch before it is written
durability, group_commit               how much is on stable storage; one sync for all that is dirty
reading, tail, held                    batches from an offset, offsets from a timestamp
derived, epochs                        derived state: leader epochs, producers, closed indexes
producers, producer_restore            state of idempotent producers
open_transactions, markers             what holds the last stable offset
"""
