"""The metadata image: everything the quorum has decided, as of one index. Immutable.

image                what is in it
roles                which node leads and follows what: an index derived from the partitions
sorted_map, pages    the persistent structures it is made of
delta                replay: the only way from one image to the next
snapshot             an image as bytes
state_machine        the quorum's state machine; owns the current image of a node
"""
