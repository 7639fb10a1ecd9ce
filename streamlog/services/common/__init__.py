"""What the services share.

collaborators         what services need of the rest of a node, as Protocols
admission, outgoing   bounds on concurrent calls, request bytes and response bytes, of all clients together
loop_turns            a turn of the event loop does no more of what many begin at once than others can wait for
client_bounds         those bounds of a node, together
topics, paging        topics as requests name them; pages of long responses
latest_metadata       partitions that this node does not know yet
forwarding, own_node  calls to another node, or to this one, on behalf of a client
gather, auto_create   concurrent calls; topics created on first use
"""
