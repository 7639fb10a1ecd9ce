"""The files of the quorum: journal, snapshots."""
