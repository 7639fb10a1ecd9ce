"""One partition's log: appending, truncating, reading, and the state derived from its batches.

log                                    the log
stamping                               what a leader rewrites in a batch before it is written
durability, group_commit               how much is on stable storage; one sync for all that is dirty
reading, batch_lookup                  batches from an offset, offsets from a timestamp; headers of given batches
derived_state, epochs                  derived state: leader epochs, producers, closed indexes
examination                            a whole segment read to find its intact ranges
"""
