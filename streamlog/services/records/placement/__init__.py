"""What of a request is written, and to which partitions.

publish_rules       what a topic's settings refuse
partition_choice    the partitioners
sticky_partition    the partition that calls share for records without a key
"""
