"""`streamlogctl group`: `commands`, `reset_offsets`; `partitions` parses the partitions of a reset."""
