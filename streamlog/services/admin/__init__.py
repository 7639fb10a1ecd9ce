"""streamlog.v1.Admin and streamlog.v1.Cluster.

service                                            the methods
configs, groups, nodes, transactions, voters       by subject
reads                                              lists and descriptions from the image
controller_commands                                commands for the active controller
record_deletion                                    records deleted by their leaders
access, quotas, loggers                            access control lists and users; limits; levels of a node's log
visible_pages                                      pages of a list for a caller who may not see all of it
cluster                                            release, features, limits
"""
