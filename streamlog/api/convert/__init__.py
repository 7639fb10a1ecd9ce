"""Converts protobuf messages to values of the layers below, and back: protobuf ends here.

Every field of a request is checked before it is used: counts before lists are walked, names before they are looked up,
numbers before calculations. An invalid field refuses the whole request, with its path (`partitions[3].topic`) and
limit. What depends on the state of the cluster (does the topic exist?) the layers below decide, for each part of the
request.

`fields` has the checks; the other modules have one subject each, those of records and of administration in folders.

produce, fetch, consume and the like       records/
topics, groups, configs for operators      admin/
metadata, view                             topics of a request; the image for clients
offsets, record_deletion, replicas         by bound or time; deleted by offset; log directories and digests
groups, transactions                       membership and offsets; for clients, and between nodes
controller, replica_states                 between nodes and the active controller
quota_use                                  what nodes use of quotas, between nodes
"""
