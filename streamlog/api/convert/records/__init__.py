"""Messages that carry records: one module for each method of reading and writing."""
