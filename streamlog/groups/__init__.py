"""Consumer groups. So far: how the records of `__consumer_offsets` are read (`offsets_topic`). Pure."""
