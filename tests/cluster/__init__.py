"""The whole cluster in one process, in virtual time, from a seed: real nodes, real clients, faults (FAULTS: I1 to I19).

plan        what a seed does, as data: nodes, hardware, settings, topics, load, faults; made before the run
replicas    what a replica holds in the end, read from its log's bytes
checks      the invariants of a history and of every replica
watch       the invariants that are checked as it happens: high watermarks, leaders of epochs, promises
eyes        how the watch sees: the methods of the real classes that it looks at
quorum      the metadata quorum under the rules of its own simulation (tests/raft/simulation)
deleter     an operator that deletes the oldest records (I23)
workload    clients that produce and consume, and record what came of it
nodes       how a node and a client of this cluster are started on a simulated host
simulation  a run's phases, from the first start to the last look
run         one seed, and its report; `python -m tests.cluster` runs one, or many
campaign    many seeds in pieces, with a log
special/    faults that need the formats of a node, or of which a plan bears few: damage, lost disks, hostile peers;
            and planted defects that plans with faults at given moments (scripted/fault_plans) must find
story       one run, for a reader
mutants     defects that are planted, and must be found

group_*     the same for consumer groups, on the same frame: members that come and go, coordinators that are struck
            (I6, I14 to I16, I19); `python -m tests.cluster.groups.group_run` runs them
"""
