"""The cluster's metadata and the controller's decisions. Pure: no clock, disk, network.

    command --decide(image)--> records --commit (streamlog.raft)--> replay --> the next image, on every node

Durable is the log of records, and snapshots, which are records as well. An image is their result: immutable, sharing
structure with its predecessor. Decisions read an image and write records; only replay of records makes a new image.
Only the active controller decides; every node replays.

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
    access/              access control lists and users
"""
