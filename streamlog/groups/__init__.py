"""Consumer groups: the coordinator's decisions, as pure functions of records of `__consumer_offsets` (SEMANTICS 9, 10).

    records     what the coordinator stores, by key, in Kafka's bytes (codec)
    state       the state of one group; replay of records
    membership  join, heartbeat, leave, removal: several commands decided together
    targets     the target assignment, by an assignor (assignors/)
    reconcile   moves each member from what it owns to its target
    committing  commit, fetch, deletion and expiry of offsets
    pending     offsets committed in open transactions
    decision    what the decisions share: context in, records and timers out
    placement   which partition stores a group

`offsets_topic` decodes records of `__consumer_offsets` for the dump, those of Kafka's classic groups too.
"""
