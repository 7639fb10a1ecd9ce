"""The transactions of a producer (SEMANTICS 7).

transaction_manager     states and transitions, calls to the coordinator
transaction_commands    the producer's methods
"""
