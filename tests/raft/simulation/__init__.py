"""The quorum in virtual time: random faults from a seed, and what must hold whatever happens.

plan       what a seed does: the faults, when, and the settings of this cluster; made before the run
history    operations of clients; linearizability of registers with distinct values
truth      what every node must agree on: entries at indexes, leaders of terms, promises kept over a crash
workload   clients that write, read, and change the voters
run        one seed from beginning to end; `python -m tests.raft.simulation` runs many
mutants    each hardening switched off
"""
