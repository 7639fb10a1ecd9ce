"""Segment files and the checks of their batches."""
