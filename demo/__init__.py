"""`make demo`: three nodes, real log lines, a leader killed with -9 while it is written to, and what became of it."""
