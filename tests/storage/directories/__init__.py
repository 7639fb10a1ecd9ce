"""Log directories."""
