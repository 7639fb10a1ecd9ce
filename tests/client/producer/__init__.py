"""The producer, its queues and partitioners."""
