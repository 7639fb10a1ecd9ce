"""Moves of replicas: `plan` makes plans, `rebalance` shows, starts and cancels them; `throttle`: their rate."""
