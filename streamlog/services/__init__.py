"""What clients call: the services of streamlog.v1, over the node's parts.

    Batches        clients that know leaders: record batches directly to and from partition leaders
    Records        clients without metadata: any node serves every partition, through the Batches of its leader
    Groups         membership and offsets of consumer groups, at the group's coordinator
    Transactions   ends of transactions, at the coordinator; any node forwards
    Admin          any node; decided by the active controller, or served from the image, or by the nodes concerned
    Cluster        release, features, limits

A handler owns the state of its own call and nothing else: nothing here is durable, and nothing remains of a call,
however it ends. Cluster state is read from the current metadata image; partition state from the `LeaderReplica`, whose
watchers are notified when the leadership ends.

    request --api.service: bounds, protobuf--> handler --api.convert: every field--> values
            --> broker, controller, image --> values --api.convert--> response

An error of one part of a request is returned with that part; an error of the whole request ends the call
(streamlog.api.errors).

    records, batches, groups, transactions, admin    a package each: `service` lists the methods, the rest is by subject
    common                                           shared: bounds, paging, forwarding
    access, audit, quotas                            who may call what; the audit log; how much a caller may use
    all_services                                     constructs all of them from the node's parts
"""
