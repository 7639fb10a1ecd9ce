"""How cost grows with what a cluster holds and serves: `make bench-growth`.

A part varies one quantity and leaves the others as they are. Each value has three (or more) real nodes of its own, so
that one does not inherit the files and caches of another. Clients run in this process, so a rate is that of nodes and
clients on the same cores; the CPU of the nodes is counted apart.

    parts            the parts, their values, and what each column means
    partitions       produce to all of them, memory, descriptors, restart, fail-over
    clients          producers, consumers at the tail, idle fetches; nodes
    logs             a log's length; many bytes through a node
    record_sizes     from ten bytes to megabytes
    fan_out          many readers of one topic, at the tail and from the disk

    loads, usage     closed loops of a record each; what the nodes' processes use
    plot             the figures as pictures
"""
