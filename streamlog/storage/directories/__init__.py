"""Log directories: the logs on one disk, their checkpoints, and their common fate.

directories    all log directories of a node
directory      one of them
maintenance    retention and compaction at their intervals
"""
