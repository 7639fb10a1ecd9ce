"""Topics: creation, deletion, growth, placement."""
