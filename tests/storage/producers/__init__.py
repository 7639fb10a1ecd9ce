"""Producer states and transactions of a log."""
