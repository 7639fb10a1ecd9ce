"""How much clients may write, read and create, and how much time they may take: limits of the metadata image.

They are enforced by delay.

limits          which limit holds for a caller, and what is used of it
rate_bucket     one limit in use
turns           the uses of one that wait
shares          how a limit is divided among the nodes
mutations       partitions that a request creates or deletes
connection_rates   how fast connections may be opened; enforced by the network
call_times      the time that calls take
gate            around the methods that quotas are for
"""
