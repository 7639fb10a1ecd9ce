"""streamlog.v1.Groups: membership and offsets of consumer groups.

service       the methods
membership    one member on a stream of its own
"""
