"""Damage on the disk: finding it in the background, and repairing it.

scrubber      each log directory read periodically
repair        a segment rewritten from its intact ranges and another replica
"""
