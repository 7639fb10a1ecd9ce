"""`streamlogctl local`: a cluster on this machine. `commands`, and `start`, which the demo uses too.

overrides: each setting that is given is applied, or refused by name.
"""
