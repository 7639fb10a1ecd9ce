"""The leader's checks of a producer's batch (Kafka's LogValidator).

validation    the batch, before it gets its offset
record_check  its records, inside their compression
kernel        the optional package that checks and decodes them in C
"""
