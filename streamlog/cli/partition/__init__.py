"""`streamlogctl partition`: `commands` is the group; `plan` makes plans of moves, `rebalance` starts them."""
