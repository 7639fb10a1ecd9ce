"""The source: planning, reading, rows."""
