"""`streamlogctl doctor`: `command`. `machine`: findings about this one. `connections`: about nodes, seen from here."""
