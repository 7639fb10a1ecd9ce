"""`streamlogctl cluster`: `commands` is the group. `debug`, `doctor`, `profile`: the commands of those names, which make
a bundle, check this machine and the nodes as seen from it, and edit the file of named clusters.
"""
