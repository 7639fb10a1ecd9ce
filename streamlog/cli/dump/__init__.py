"""`streamlogctl dump`: `command`; `classic` is the format of Kafka's tool, `as_json` is JSON."""
