"""One partition's log: appending, truncating, reading, and the state derived from its batches.

log, state                             the log; its segments, offsets and facts
stamping                               what a leader rewrites in a batch before it is written
durability, group_commit               how much is on stable storage; one sync for all that is dirty
reading, batch_lookup, time_lookup     batches from an offset; headers of given batches; offsets from a timestamp
truncation, segment_changes            a log truncated; segments removed and replaced
derived_state, epochs                  derived state: leader epochs, producers, closed indexes
examination, damaged_ranges, damage    a segment read to find its intact ranges; what is known of damage
"""
