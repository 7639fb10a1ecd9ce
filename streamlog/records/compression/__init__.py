"""The codecs of a batch's records, with bounded unpacking.

codecs         the five codecs, by name and number; `snappy`: Kafka's framing of that one
bounds         the limit on unpacked bytes
unpacked_size  whether a stream exceeds it, mostly decided without unpacking
repacking      another codec for a batch
"""
