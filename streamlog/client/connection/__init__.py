"""How a client reaches the cluster: channels to nodes, metadata, coordinators.

client_ports            the ports of a client: clock, randomness, network, workers
connection_log          what a client logs of its connections
connections, addresses  one channel an address, shared by all parts of a client
metadata                nodes, topics and leaders as this client knows them
coordinator             the node that coordinates a group
any_node, backoff       calls that any node answers; how long to wait between attempts
until_one_ends          the tasks of a stream, which end together
sync_loop               the thread on which the synchronous clients run the asynchronous ones
throttle_time           how long quotas held the client up
token_login             a bearer token, got and renewed
authentication          which errors mean that authentication failed
close_time, unclosed    how long `close` takes; clients that a program does not close
"""
