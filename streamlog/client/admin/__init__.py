"""The admin client: topics, configs, partitions, nodes, groups, transactions. Any node answers any of its calls.

async_admin, sync_admin                  what a program holds; groups and transactions are its parts for these
values, group_values, transaction_values what it takes and returns
offset_resets                           new offsets for a group, planned before they are set
records, access, loggers                 deletion by offset; access control lists and users; levels of a node's log
quotas                                   limits of users and client ids
paging                                   lists that nodes return in pages
arguments                                what callers give, checked by the annotations
requests, answers                        values to messages, messages to values
"""
