"""What services share.

collaborators         what services need of the rest of a node, as Protocols
admission, outgoing   bounds on calls, and on bytes of responses, of all clients together
topics, paging        topics as requests name them; pages of long answers
forwarding, own_node  calls to another node, and to this one, on behalf of a client
gather, auto_create   several calls at once; topics created on first use
"""
