"""The scrubber."""
