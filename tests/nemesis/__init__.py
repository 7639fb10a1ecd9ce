"""Nemesis: real `streamlogd` processes under faults, and the simulation's checkers on what came of it (`make nemesis`).

The simulation (`tests/cluster`) runs the nodes' code on simulated ports, so it cannot see what the real ones do: a
kernel's network and its time-outs, a file system that loses its power, threads. Here all of that is real,
and the price is that a run is reproducible in its plan only: which faults, in which order, of what length, on whom. The
timing of real processes is their own.

    __main__           arguments; enters the sandbox; rounds, one after the other; text, report, exit status
    round              one cluster from its start to its end, and what must hold then
    nodes              streamlogd processes, their folders, disks and clocks
    observer           looks at the cluster from outside: leaders, memory, processes that end
    faults/sandbox     namespaces of our own for network, mounts and processes: what is left behind dies with them
           machine     what this machine has, and the reason where something is missing
           plan        faults as data, drawn from a seed: alone and in pairs
           striker     carries a plan out, repairs, and measures how long no write was acknowledged (I19)
           switch      an Ethernet switch in user space (switch.c) between the nodes' network namespaces
           disks       ext4 images on loop devices: power cuts, full, read-only
           shim        LD_PRELOAD (shim.c): the wall clock, failing and slow system calls on files
    clients/workload   clients in this process: producers, readers, groups, transactions; their history
            administration  topics made, grown and deleted, elections, reassignments, configs, all the time
            membership      voters added and removed, lost votes restored
            flow            acknowledgements over time
    results/evidence   what the stopped nodes' files hold, and what their logs say
            findings   each once
            report     one HTML page with a timeline; svg: its pictures
    planted            defects that are put into the nodes, which must be found

The invariants are those of the simulation, checked by the same code: `tests.cluster.checking` (I1 to I8, I18),
`group_watch` (I6, I14 to I16), `transaction_ledger` (I1, I2, I4, I14), the quorum's register (I12); I10, I19 and
I22 are checked from outside. What only the inside of a node shows (I9, I11, I13) is checked by the simulation.
"""
