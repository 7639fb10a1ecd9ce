"""The cluster's metadata: what the quorum has decided, and the controller's decisions. Pure: no clock, disk, network.

    command --decide(image)--> records --commit (streamlog.raft)--> replay --> the next image, on every node

What is durable is the log of records, and snapshots that are records as well. An image is what they make, immutable
and shared in part with the one before. Decisions read an image and write records; nothing else changes one. Only the
active controller decides; every node replays.

    records                    the records, and the values in them: Partition, Broker
    features                   metadata.version: which records may stand in the log
    convert, pb/               records as protobuf (proto/streamlog/internal/v1/metadata.proto)
    image, roles               everything known at one index; who leads and follows what, as an index
    sorted_map, pages          the persistent structures in it
    delta                      replay
    snapshot, state_machine    an image as bytes; the quorum's state machine

    controller                 the table of commands; how a shell uses them
    decision, settings         the shape of a decision, and what it may know beside the image
    registration, liveness     nodes join, heartbeat, are fenced, stop
    election, rules            who leads a partition and who is in sync, whatever the occasion
    settle                     the consequences of a change
    isr, leaders               what partition leaders ask for; elections and balance
    topic_*, assignment        topics are made, grown, deleted
    placement                  where replicas go
    reassignment, drain*       replicas move
    configs, internal_topics, cluster
"""
