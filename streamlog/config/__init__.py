"""Every setting of node, topic and client: type, range, default, one sentence, with Kafka's names. Pure.

Nothing else in the project parses options. The tables are data:

    settings/node_settings      the node, and the whole NODE table; with log_, group_, security_, tls_settings
    settings/topic_settings     TOPIC
    settings/topic_defaults     the node's settings that are topics' defaults, and the synonyms between the two
    settings/client_settings    PRODUCER, CONSUMER, ADMIN; with producer_, consumer_settings
    settings/kafka_only         Kafka's settings that have no effect here, and why

How they are used:

    text --properties--> entries --load--> Config, warnings          server.properties, --override, arguments
    layers --effective--> Config                                     dynamic over static over default, with sources
    topic's own + layers --log_values--> LogValues                   the values of the node's LogConfig
    change --dynamic--> text to store, or InvalidConfigError         AlterConfigs
    Config --print_config--> properties                              --print-config

A setting is read by its constant, which has its type: `config[node_settings.NUM_PARTITIONS]` is an int. Stateless: a
changed dynamic value gives a new Config.

kinds, rule, references        how a value is parsed; rules between settings; values from files and the environment
node_rules, client_rules       the rules of nodes and topics, and of clients
listeners, listener_rules      a node's listeners, from several settings; their rules
addresses, offset_reset        types with a grammar of their own
unknown                        explains a name that is no setting
"""

from streamlog.config.dynamic import ConfigChange, Operation, Scope, changed_value, check_together, check_value
from streamlog.config.effective import (
    Config,
    ConfigSynonym,
    Effective,
    Layer,
    Source,
    node_config,
    node_layers,
    node_value,
    plain_config,
    topic_config,
)
from streamlog.config.load import Loaded, PropertiesFile, load_admin, load_consumer, load_node, load_producer
from streamlog.config.log_values import LogValues, resolve_log_settings
from streamlog.config.print_config import print_config
from streamlog.config.setting import Setting, Table, Update

__all__ = [
    "Config",
    "ConfigChange",
    "ConfigSynonym",
    "Effective",
    "Layer",
    "Loaded",
    "LogValues",
    "Operation",
    "PropertiesFile",
    "Scope",
    "Setting",
    "Source",
    "Table",
    "Update",
    "changed_value",
    "check_together",
    "check_value",
    "load_admin",
    "load_consumer",
    "load_node",
    "load_producer",
    "node_config",
    "node_layers",
    "node_value",
    "plain_config",
    "print_config",
    "resolve_log_settings",
    "topic_config",
]
