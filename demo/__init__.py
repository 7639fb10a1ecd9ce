"""`make demo`: three nodes, real log lines, a leader killed with -9 during the writes, and the results."""
