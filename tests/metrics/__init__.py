"""streamlog.metrics, what a node says with it, and the files that use the names."""
