"""`streamlogctl partition`: `commands` is the group, of

elect         leaders
reassign      replicas to other nodes; `throttle` bounds the rate
replicas      verify, repair
log_dir       replicas to another log directory of their node

`plan` makes plans of moves, `rebalance` starts them.
"""
