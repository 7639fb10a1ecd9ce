"""Damage in a log is repaired from another replica, and replicas are compared.

log_repairs     what is damaged, and the attempts to repair it
range_fetch     committed batches of another node's replica
digest          a hash over a range of a log
"""
