"""Decisions about nodes: they register, send heartbeats, are fenced, shut down, are drained.

registration    register, unregister
liveness        heartbeats, sessions, fencing, controlled shutdown
drain           an operator starts or cancels a drain (its moves: partitions.drain_moves)
"""
