"""`streamlogctl local`: a cluster on this machine. `commands`, and `start`, which the demo uses too."""
