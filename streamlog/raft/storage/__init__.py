"""The quorum's files in one directory, and the log in memory.

    journal, journal_format     the write-ahead log in one file: entries, term, vote
    memory_log                  the same entries in memory
    snapshot_store, snapshot_file
                                the latest snapshot, the one being received, and their format
    identity                    which node and cluster own the directory
    framed_file                 small files with a magic number, a version and a CRC

`raft.open_storage` opens all of them together.
"""
