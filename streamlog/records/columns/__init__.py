"""A batch read by column with numpy, instead of record by record.

columnar       the position of each field of each record
starts         where each record starts; `equal_shape`: the case that all have the same sizes
ragged         byte strings of mixed sizes, moved at once
binary_column  byte strings concatenated for Arrow
lazy_numpy     numpy, loaded when it is first needed
"""
