"""What Kafka wrote before 0.11: messages of magic 0 and 1, read and never written.

messages    their layout, and their records
conversion  their conversion to record batches
lz4_header  the wrong checksum of their LZ4 frames
"""
