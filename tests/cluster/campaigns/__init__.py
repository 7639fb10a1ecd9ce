"""Many seeds of a simulation: over processes, in pieces, from the command line."""
