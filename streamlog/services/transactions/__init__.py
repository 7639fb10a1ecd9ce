"""streamlog.v1.Transactions, and streamlog.internal.v1.Coordination between nodes.

service         what producers and operators call
coordination    calls between nodes
markers         transaction markers, appended by the leaders of their partitions
"""
