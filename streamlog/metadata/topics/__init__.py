"""Decisions about topics, and where their replicas are placed.

creation, deletion, growth    topics are created and deleted, and get more partitions
names                         what a topic may be called
internal_topics               the topics the cluster keeps for itself
placement                     the nodes for new replicas
assignment                    replica lists given by a user
"""
