"""Benchmarks: `make bench`, or `python -m bench [PART ...]`.

A part is a module with one function that measures and returns figures (`registry`). Machines differ and are shared, so
figures have a baseline where possible, measured alternately: the ratio is more reliable than the number.
"""
