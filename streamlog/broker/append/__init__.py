"""The way of batches into the log of a partition that this node leads.

pipeline                all stages, from a producer's bytes to the notified watchers: start here
admission               the node's bound on bytes that wait
verification            stage 1: the first batch of a transaction, and the coordinator's confirmation
preparation             stage 2: large, legacy and recompressed batches, in a worker thread
transaction_markers     markers that end transactions; held_markers: those that wait for the next transaction's batch
"""
