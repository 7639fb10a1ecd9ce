"""Publish, called by many at once, on a simulated cluster under faults."""
