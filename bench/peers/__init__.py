"""Comparison with other systems, on the same machine in the same run: `make bench-peers`.

clients         the cells, their rounds and figures
our_clients     the cells with our clients; other_clients: with those of Kafka and NATS
workload        the records
systems         a Kafka and a NATS of three nodes each
spark           Spark's sources of streamlog and of Kafka
"""
