"""Messages of the quorum: their encoding, and hostile ones."""
