"""`streamlogctl cluster`: `commands` is the group, with nodes and features; `health`, `voters`, `log_dirs` beside it.

`debug`, `doctor` and `profile` are the commands of those names, which make a bundle, check this machine and the nodes
as seen from it, and edit the file of named clusters.
"""
