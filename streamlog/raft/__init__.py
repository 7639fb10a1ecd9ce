"""The metadata quorum: a replicated log of opaque commands, applied to a state machine.

An acknowledged command is in the log of a majority, on stable storage, and is applied once, at the same index, by every
node. The rules are Raft's (Ongaro, "Consensus: Bridging Theory and Practice", 2014; below: thesis). The core is
PySyncObj, hardened; docs/decisions/2026-11-21-metadata-quorum.md lists what of it runs and what is replaced.

Roles: follower -> (pre-vote) -> candidate -> leader, owned by `core.elections`. Durable: the journal (entries, term,
vote), the snapshot, the identity; all other state is volatile. `last_applied <= commit_index <= last index`.

    port           the interface to the rest of the node: Quorum, StateMachine
    settings, voters
                   values
    protocol/      entries, messages, and their bytes
    core/          the Raft state machine; synchronous
    storage/       journal, snapshot, identity of the directory
    open_storage   opening all of them, or refusing to
    transport      one stream per pair of nodes over the Network port
    runner         the tasks: turns, syncs, snapshots
    node           RaftNode implements the port
    observers      any number of nodes follow without a vote

The core is synchronous: it takes the time, messages and commands, writes to the journal without waiting, and puts
messages into the outbox. Everything that waits (syncs, streams, files) is in `runner`, `transport` and `storage/`.
"""
