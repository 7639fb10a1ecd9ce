"""The consumer without a group."""
