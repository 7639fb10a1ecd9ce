"""The sink and its protocol."""
