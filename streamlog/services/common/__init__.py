"""What the services share.

collaborators         what services need of the rest of a node, as Protocols
admission, outgoing   bounds on concurrent calls, request bytes and response bytes, of all clients together
topics, paging        topics as requests name them; pages of long responses
forwarding, own_node  calls to another node, or to this one, on behalf of a client
gather, auto_create   concurrent calls; topics created on first use
"""
