"""Recovery after a crash or a power cut."""
