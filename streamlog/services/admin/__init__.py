"""streamlog.v1.Admin and streamlog.v1.Cluster.

service                                            the methods
configs, groups, nodes, transactions, voters       by subject
reads                                              lists and descriptions from the image
controller_commands                                commands for the active controller
record_deletion                                    records deleted by their leaders
cluster                                            release, features, limits
"""
