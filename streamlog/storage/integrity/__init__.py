"""Damage on the disk: how it is found, and how a segment is repaired.

batch_checks                what is checked of a batch before it is served
examination                 a whole segment read to find its intact ranges
scrubber, scrub_progress    everything read once in a while
repair                      a segment written again from its intact ranges and another replica
"""
