"""The Groups service."""
