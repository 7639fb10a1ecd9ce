"""Partitions that this node follows.

follower_replica    one partition followed under one leader epoch
follower_links      the connections to leader nodes; follower_link: one of them, with the partitions on it
follower_traces     spans of traced appends below those of the leader
"""
