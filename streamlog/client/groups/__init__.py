"""A consumer's membership of a group.

consumer_group        what a consumer with a group.id has: the parts below, and its commits
consumer_membership   joining, heartbeats, leaving: the member as the coordinator sees it
rebalancing           what the coordinator assigns becomes what the consumer reads
group_offsets         committed offsets
poll_watch            max.poll.interval.ms
coordinator_watch     warnings while the coordinator does not answer
missing_topics_watch  warnings of topics that do not exist
"""
