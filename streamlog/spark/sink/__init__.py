"""Writing: tasks prepare transactions, the driver decides on a micro-batch and commits them.

commit          the protocol, and the driver's part
state           decisions and their rules (pure)
decision_log    the last decision, in a compacted topic
task            one task's rows in one transaction
writers         Spark's interface
"""
