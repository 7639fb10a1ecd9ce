"""Comparison with other systems, on the same machine in the same run: `make bench-peers`."""
