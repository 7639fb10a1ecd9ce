"""The Raft state machine of one voter. Synchronous: it takes messages, commands and the time, and fills the outbox.

library           the typed window on PySyncObj's private parts, and its clock
syncobj           the core: SyncObj with its overrides; one turn
elections         roles: pre-vote, votes, stepping down
follower_append   a follower appends the leader's entries
replication, progress
                  a leader sends entries and snapshots, tracks each peer, advances the commit index
voter_set_history, voter_changes
                  which voters are in effect; changes of them, one at a time
applying, sessions
                  committed entries are applied to the state machine, each command once
snapshots         taking and installing a snapshot
proposals, read_barriers
                  callers that wait: for a commit, for a linearizable read
outbox            messages that wait for a sync
"""
