"""Messages that describe and change topics, partitions, groups, transactions, configs and access.

topics, partitions, configs, access, quotas, loggers
                                                by subject
placement                                       elections, reassignments, drains
group_admin, transaction_admin                  groups and transactions for operators
"""
