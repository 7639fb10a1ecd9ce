"""`streamlogctl dump`: `command`; `classic` prints in the format of Kafka's tool, `as_json` as JSON."""
