"""One file for each view. Each registers its addresses with `register(sampler)`.

overview, brokers, topics, records, groups, transactions, quorum, quotas, operations, audit, alarms    a view each
alarm_rules, alarm_channels, alarm_place    parts of the view of alarms
"""
