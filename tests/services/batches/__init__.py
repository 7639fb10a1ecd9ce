"""The Batches service: produce, fetch, metadata."""
