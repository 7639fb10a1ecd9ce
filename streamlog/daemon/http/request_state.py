"""What a connection of the listener adds to its requests: the keys of `scope["state"]`."""

from typing import Final

ABORT: Final = "abort"
"""A function that closes the connection, and drops what its client has not read."""
