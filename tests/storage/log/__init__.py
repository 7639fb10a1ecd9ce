"""One log: append, read, truncate, restart."""
