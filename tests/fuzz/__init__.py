"""Every method of a real cluster under random, mutated and hostile messages (`make fuzz MINUTES=5 SEED=7`).

    catalogue   every method that a node serves, from the descriptors; those between nodes too
    messages    from a seed and a number to the messages of one call
    templates   what clients and nodes really send; batches
    known       what a caller may know of the cluster
    spared      what a caller may do by right, and would prove nothing: draining a node, removing a voter
    calls       one call in one of its ways: whole, half open, cancelled, never read; its status and reason
    cluster     three streamlogd processes in a scratch directory, and what is watched about them
    good        the well-behaved client beside it, a process of its own: its records, offsets, latencies
    wire        connections that break HTTP/2, after the calls
    session     puts these together, for so long
    report      statuses by method, and what failed

A failure is: a status INTERNAL or UNKNOWN (a handler that crashed), a traceback or a defect in a node's log, a node
that died or does not serve, something changed that the well-behaved client has written, memory or disk beyond a bound.
A call's messages follow from seed and number, but for the ids that a cluster draws itself; so a failing call is written
to a file with its bytes (`python -m tests.fuzz --replay FILE`).
"""
