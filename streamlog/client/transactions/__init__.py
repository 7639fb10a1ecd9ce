"""The transactions of a producer (SEMANTICS 7).

transactions            states and their transitions
transaction_commands    what a program calls
"""
