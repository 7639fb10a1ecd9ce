"""`streamlogctl group`: `commands`, `reset_offsets`; `partitions` chooses the partitions that a reset is about."""
