"""`streamlogctl partition`: `commands`; `plan` makes plans of moves, `rebalance` starts them; `throttle`; `log_dir`."""
