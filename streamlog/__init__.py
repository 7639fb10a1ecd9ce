"""streamlog: a distributed, partitioned, replicated commit log."""
