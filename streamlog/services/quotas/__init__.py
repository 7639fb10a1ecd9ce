"""How much clients may write and read: the limits of the metadata image, enforced by delay.

limits          which limit holds for a caller, and what is used of it
rate_bucket     one limit in use
shares          how a limit is divided among the nodes
gate            around the methods that write and read records
"""
