"""The core, driven by hand: elections, the rules of the thesis, reads, values."""
