"""Retention and compaction (SEMANTICS 11).

retention                              which whole segments are deleted
cleaner                                which log is compacted, and how
compaction, key_map                    which records of a batch are kept
cleaned_transactions                   transactions under compaction
maintenance                            retention and compaction at their intervals
"""
