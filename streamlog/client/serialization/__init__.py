"""Keys and values as the program's own types: what a producer's serializers and a consumer's deserializers do.

formats                 the formats by name: Kafka's classes, and types of Python
record_serializers      keys and values of a producer's records into bytes
record_deserializers    of a consumer's records back; records that cannot be deserialized
pending                 what a format has to load first, as a schema from its registry

A client without them handles bytes alone, and loads nothing of this.
"""
