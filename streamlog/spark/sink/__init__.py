"""Writing: tasks prepare transactions, the driver decides on a micro-batch and commits them."""
