"""What a start believes of the files that it finds.

open_log               a clean stop is believed, otherwise the log is scanned
recovery               the scan
transaction_replay     the aborted transactions of a segment, found again from its batches
"""
