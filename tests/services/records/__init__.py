"""The Records service: Publish, Subscribe, Consume."""
