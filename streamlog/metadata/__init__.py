"""The cluster's metadata: what the quorum has decided, and the controller's decisions. Pure: no clock, disk, network.

    command --decide(image)--> records --commit (streamlog.raft)--> replay --> the next image, on every node

What is durable is the log of records, and snapshots that are records as well. An image is what they make, immutable
and shared in part with the one before. Decisions read an image and write records; nothing else changes one. Only the
active controller decides; every node replays.

    records, features    the records and the values in them; metadata.version: which records may be in the log
    convert, pb/         records as protobuf (proto/streamlog/internal/v1/metadata.proto)
    image/               everything known at one index, replay, snapshots
    view                 what one node knows: its newest image, and who the active controller is

    controller           the table of commands; how a shell uses them
    decision, settings   the shape of a decision, and its input besides the image
    cluster              bootstrap, feature level, blocks of producer ids, a change of the controller
    brokers/             nodes register, send heartbeats, are fenced, shut down, are drained
    partitions/          leaders, ISRs, elections, recovery, reassignment
    topics/              topics are created, deleted, extended; where replicas are placed
    configs/             configs of topics and nodes
"""
