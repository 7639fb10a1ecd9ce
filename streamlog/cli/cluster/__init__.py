"""`streamlogctl cluster`: `commands`, `health`. `debug`, `profile`: the commands of those names, which collect a bundle
and edit the file of named clusters.
"""
