"""How a client reaches the cluster: channels to nodes, metadata, coordinators.

client_ports            what a client needs of the world: clock, randomness, network, workers
connections, addresses  one channel an address, shared by all parts of a client
metadata                nodes, topics and leaders as this client knows them
coordinator             the node that coordinates a group or a transactional id
any_node, backoff       calls that any node answers; how long to wait between attempts
sync_loop               the thread on which the synchronous clients run the asynchronous ones
"""
