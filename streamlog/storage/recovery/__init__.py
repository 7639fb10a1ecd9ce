"""Opening a log at the start of a node.

open_log     after a clean stop the log is opened as its checkpoints describe it, otherwise it is scanned
recovery     the scan
lost_segments
             segments whose `.log` is missing and whose aborted transactions are known
"""
