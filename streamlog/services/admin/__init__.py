"""streamlog.v1.Admin and streamlog.v1.Cluster.

service                                            the methods
configs, groups, nodes, transactions, voters       by subject
reads                                              what is answered from the image or by the nodes concerned
controller_commands                                what the active controller decides
cluster                                            release, features, limits
"""
