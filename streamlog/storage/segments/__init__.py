"""One segment of a log: its files, their indexes, and how they are searched.

segment, segment_list             a .log with its indexes; the segments of a log in order
entry_file, entry_index           files of fixed-size entries, and the search in them
offset_index, time_index          .index and .timeindex
transaction_index                 .txnindex
index_rebuild, scan, header_scan  reading batches of a segment in bounded pieces
tail                              positions of the last batches, in memory
swap                              replacing segments atomically
batch_checks, plain_run           what is checked of a batch before it is served; the short way of the check
verified                          which bytes are known to be intact
"""
