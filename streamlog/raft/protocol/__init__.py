"""The quorum's values, and their bytes.

entries     entries of the log
messages    between voters
observed    from a voter to an observer
stored      in the quorum's files, besides entries
bounds      the limits of their numbers
wire        values <-> protobuf; the only module of raft/ that imports protobuf
"""
