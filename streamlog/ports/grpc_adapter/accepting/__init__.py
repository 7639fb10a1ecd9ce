"""Connections on their way in: accepted, counted, limited.

listener          listening sockets, and what is accepted from them
connections       limits on the open ones, in all and by address
connection_rate   limits on how fast they are opened
syn_filter        requests to connect that the kernel does not answer
deferred_accept   silent connections stay in the kernel
"""
