"""One file for each view. Each registers its addresses with `register(sampler)`.

overview, brokers, topics, records, groups, transactions, quorum, quotas, operations, audit, alarms    a view each
"""
