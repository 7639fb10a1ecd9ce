"""What clients call: the services of streamlog.v1, over the node's parts.

    Batches    clients that know leaders: record batches straight to and from the replica that leads
    Records    clients that know nothing: any node serves every partition, by the Batches of whoever leads it
    Admin      asked anywhere; decided by the active controller, or answered from the image, or by the nodes concerned
    Cluster    release, features, limits

A handler owns the state of its own call and nothing else, so nothing here is durable, and a call that ends, by
whatever end, leaves nothing behind. What it reads of the cluster it reads from the metadata image as of that moment;
what it reads of a partition it asks of the `LeaderReplica`, and finds out by its watchers that the leadership is over.

    request --api.service: bounds, protobuf--> handler --api.convert: every field--> values
            --> broker, controller, image --> values --api.convert--> response

One error of a part of a request stands beside that part; one of the whole ends the call (streamlog.api.errors).

    records, batches, groups, transactions, admin    a package each: `service` has the methods, the rest by subject
    common                                           what they share: bounds, paging, forwarding
    all_services                                     all of them, made of the node's parts
"""
