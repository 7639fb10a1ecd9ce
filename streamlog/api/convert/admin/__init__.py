"""Messages that describe and change topics, partitions, groups, transactions, configs and access."""
