"""The pipelines as processes."""
