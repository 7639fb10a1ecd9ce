"""The Admin service."""
