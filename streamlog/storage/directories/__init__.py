"""Log directories: the logs on one disk, their checkpoints, and their common state: online or offline.

directories           all log directories of a node
directory             one of them
offset_checkpoints    its checkpoints: recovery points, log starts, how far logs are compacted
moving_logs           its logs that are between it and another directory
log_move              one log that moves to another of them
scrub_progress        how far its scrubber is
"""
