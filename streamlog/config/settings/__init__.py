"""The tables of settings, as data: type, range, default and one sentence for each.

node_settings, log_settings, group_settings, security_settings, tls_settings    of a node
topic_settings, topic_defaults    of a topic; the node settings that are defaults of topics
client_settings, producer_settings, consumer_settings    of the clients
http_settings, node_tracing_settings    the API over HTTP, spans of a node
listener_settings    of one listener of a node, by its name
token_settings    bearer tokens of a client
kafka_only, not_yet    of Kafka, which have no effect here, and why
"""
