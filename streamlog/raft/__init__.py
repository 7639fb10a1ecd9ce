"""The metadata quorum: a replicated log of opaque commands, and the state machine that they make.

No decision is ever lost or made twice: a command that was acknowledged is in the log of a majority, on stable storage,
and is applied once, in the same place, by every node. The rules are Raft's (Ongaro, "Consensus: Bridging Theory and
Practice", 2014; below: thesis). The core is PySyncObj, hardened; docs/decisions/2026-11-21-metadata-quorum.md tells
what of it runs and what is replaced.

Roles: follower -> (pre-vote) -> candidate -> leader, owned by `elections`. Durable: the journal (entries, term, vote),
the snapshot, the identity; all else is learnt again from the others. `last_applied <= commit_index <= last index`.

    port          what the rest of the node sees: Quorum, StateMachine
    settings, voters, entries, messages, stored, observed
                  values
    wire          values <-> protobuf, for streams and files; the only module that sees protobuf

    library       the typed window on PySyncObj's private parts, and its clock
    syncobj       the core: SyncObj with its overrides; one turn
    elections     roles: pre-vote, votes, stepping down
    append        a follower takes entries
    replication, progress
                  a leader sends entries and snapshots, counts who has them, commits
    membership, voter_changes
                  which voters are in effect; changes of them, one at a time
    applying, sessions
                  committed entries go into the state machine, each command once
    proposals, barriers
                  callers that wait: for a commit, for a linearizable read

    journal, journal_format, memory_log
                  the write-ahead log in one file, and the entries in memory
    snapshot_file, snapshot_store, snapshots
                  the format; the file on disk; taking and installing
    identity, framed_file
                  whose directory this is
    storage       opening all of it, or refusing to

    outbox        messages that wait for a sync
    transport     one stream a pair of nodes over the Network port
    runner        the tasks: turns, syncs, snapshots
    node          RaftNode implements the port
    observers     any number of nodes follow without a vote

The core is synchronous: it is told the time, messages and commands, writes to the journal without waiting, and puts
messages into the outbox. Everything that waits (syncs, streams,
files) is in `runner`, `transport` and the modules of the files.
"""
