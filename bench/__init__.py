"""What streamlog costs, measured: `make bench`, or `python -m bench [PART ...]`.

A part is a module with one function that measures and returns figures (`registry`). Machines differ and are shared,
so every figure that can has a yardstick beside it, measured in turn with it: its ratio says more than its number.
"""
