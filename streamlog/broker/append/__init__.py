"""The way of a producer's batches into the log of a partition that this node leads.

verification    the first batch of a transaction: the coordinator's consent, and the order after the previous marker
preparation     what is done to large, legacy and recompressed batches in a worker thread
held_markers    markers that wait a moment for the first batch of the next transaction
"""
