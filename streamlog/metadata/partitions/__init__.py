"""Decisions about partitions: who leads, who is in sync, where the replicas are.

election                     the state a partition should be in, whatever the occasion
settle                       the consequences of a change
isr                          ISR changes proposed by partition leaders (AlterPartition); failed disks
leaders                      elections on request; the balance of leaders
recovery, replica_states     unclean recovery: a leader chosen by the state of the replicas' logs
reassignment, drain_moves    replicas move to other nodes
"""
