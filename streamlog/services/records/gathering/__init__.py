"""Batches of Publish calls that arrive together, appended together.

gathered_writes     start here: a call's batch into the lane of its partition, and its outcome
batch_write         one batch of a call, and its outcome
lane                when the batches of a lane are sent
own_appends         a group appended here, where this node leads the partition
produce_calls       a group in one Produce at another leader
"""
