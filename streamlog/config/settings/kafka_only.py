"""Settings of Kafka that have no effect here, each with the reason.

A node or client starts with the configuration file of a Kafka broker or client: each setting without effect is reported
with its reason. Names are those of Kafka 4.2 and common ones of earlier releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LOOP: Final = "a node serves all requests on one event loop: there are no thread pools"
_QUORUM_LISTENER: Final = "the quorum uses the listener between nodes: inter.broker.listener.name"
_SASL: Final = "a client authenticates with a certificate, a password or a bearer token"
_PEM: Final = (
    "TLS is OpenSSL's, with keys and certificates in PEM: it has none of Java's providers, key stores and algorithms"
)
_REMOTE: Final = "logs are on the nodes' own disks: there is no tiered storage"
_SHARE: Final = "there are no share groups"
_STREAMS: Final = "there are no streams groups: an application of Kafka Streams cannot join"
_METRICS: Final = "metrics are served to Prometheus, without reporters or sampling windows"
_QUOTA_WINDOW: Final = "only the windows of client quotas can be configured: see quota.window.size.seconds"
_TIMERS: Final = "waiting requests are completed by their own timers and events: there is no purgatory to purge"
_QUORUM: Final = "the leader of the quorum replicates over streams: see controller.quorum.election.timeout.ms"
_JOURNAL: Final = "the quorum's journal is one file, replaced when a snapshot is made"
_PUSH: Final = (
    "a leader pushes to its followers over one stream: they do not fetch, so there are no waits or fetcher threads"
)
_JITTER: Final = "segments roll by the timestamps of their records: there is no jitter"
_SOCKET: Final = "the sizes of sockets' buffers are the kernel's: they grow with the way to the peer"
_CLASS: Final = "Java classes cannot be loaded"
_COMPRESSION: Final = "a node stores batches as compressed by the producer, which has this setting"
_TELEMETRY: Final = "clients do not send metrics to the nodes"
_CONNECTIONS: Final = "connections are limited in total and by address: see max.connections and max.connections.per.ip"
_SESSION: Final = (
    "one pair of limits applies to all groups: see group.min.session.timeout.ms, group.max.session.timeout.ms"
)
_HEARTBEAT: Final = "one interval applies to all groups: see group.consumer.heartbeat.interval.ms"
_THROTTLED: Final = "all replicas that move or catch up are throttled by the nodes' rates, without a list"

_BY_PREFIX: Final[Mapping[str, str]] = {
    "zookeeper.": "there is no ZooKeeper: the nodes of controller.quorum.voters hold the metadata",
    "sasl.": _SASL,
    "delegation.token.": _SASL,
    "remote.": _REMOTE,
    "local.retention.": _REMOTE,
    "log.local.retention.": _REMOTE,
    "group.share.": _SHARE,
    "share.": _SHARE,
    "group.streams.": _STREAMS,
    "kafka.metrics.": _METRICS,
    "metrics.": _METRICS,
    "quota.": _QUOTA_WINDOW,
    "replication.quota.": _QUOTA_WINDOW,
    "controller.quota.": _QUOTA_WINDOW,
    "alter.log.dirs.replication.quota.": _QUOTA_WINDOW,
    "listener.name.": "of one listener only ssl.keystore.*, ssl.truststore.*, ssl.client.auth and "
    "ssl.principal.mapping.rules can be set, with "
    "its name in small letters",
    "ssl.": _PEM,
    "confluent.": "it is a setting of Confluent's server",
    "internal.": "it is a setting of Kafka's tests",
}
"""Whole families. `_BY_NAME` takes precedence over them, a setting of ours over both."""

_BY_NAME: Final[Mapping[str, str]] = {
    # users
    "sasl.jaas.config": "Java classes cannot be loaded: give sasl.username and sasl.password, or sasl.oauthbearer.*",
    # roles and listeners
    "process.roles": "every node is a broker, and a controller where controller.quorum.voters names it",
    "broker.id": "a node has one id: use node.id",
    "broker.id.generation.enable": "node ids are not generated: use node.id",
    "reserved.broker.max.id": "node ids are not generated: use node.id",
    "controller.listener.names": _QUORUM_LISTENER,
    "control.plane.listener.name": _QUORUM_LISTENER,
    "security.inter.broker.protocol": "use inter.broker.listener.name",
    "early.start.listeners": "all listeners start at the same time",
    "host.name": "use listeners",
    "port": "use listeners",
    "advertised.host.name": "use advertised.listeners",
    "advertised.port": "use advertised.listeners",
    "inter.broker.protocol.version": "nodes of different releases negotiate the version themselves",
    # threads and queues
    "num.network.threads": _LOOP,
    "num.io.threads": _LOOP,
    "background.threads": _LOOP,
    "num.recovery.threads.per.data.dir": _LOOP,
    "num.replica.alter.log.dirs.threads": _LOOP,
    "log.cleaner.threads": _LOOP,
    "group.coordinator.threads": _LOOP,
    "group.coordinator.append.linger.ms": _LOOP,
    "queued.max.requests": "requests are counted in bytes: use queued.max.request.bytes",
    "fetch.purgatory.purge.interval.requests": _TIMERS,
    "producer.purgatory.purge.interval.requests": _TIMERS,
    "delete.records.purgatory.purge.interval.requests": _TIMERS,
    "max.incremental.fetch.session.cache.slots": "a fetch session is a stream, and ends with it",
    "max.request.partition.size.limit": "the number of partitions in a response has a fixed limit",
    # connections
    "socket.send.buffer.bytes": _SOCKET,
    "socket.receive.buffer.bytes": _SOCKET,
    "socket.listen.backlog.size": _SOCKET,
    "socket.connection.setup.timeout.ms": _SOCKET,
    "socket.connection.setup.timeout.max.ms": _SOCKET,
    "send.buffer.bytes": _SOCKET,
    "receive.buffer.bytes": _SOCKET,
    "replica.socket.receive.buffer.bytes": _SOCKET,
    "replica.socket.timeout.ms": _PUSH,
    "request.timeout.ms": "requests between nodes have fixed timeouts; it is a setting of clients",
    "max.connections.per.ip.overrides": _CONNECTIONS,
    "connection.failed.authentication.delay.ms": _SOCKET,
    "connections.max.reauth.ms": _SASL,
    "client.dns.lookup": "all addresses of a host name are tried",
    # the quorum
    "controller.quorum.fetch.timeout.ms": _QUORUM,
    "controller.quorum.election.backoff.max.ms": _QUORUM,
    "controller.quorum.request.timeout.ms": _QUORUM,
    "controller.quorum.retry.backoff.ms": _QUORUM,
    "controller.quorum.append.linger.ms": _QUORUM,
    "controller.quorum.auto.join.enable": "a node becomes a voter only by 'streamlogctl cluster add-voter'",
    "controller.socket.timeout.ms": _QUORUM,
    "metadata.max.idle.interval.ms": _QUORUM,
    "metadata.log.segment.bytes": _JOURNAL,
    "metadata.log.segment.ms": _JOURNAL,
    "metadata.log.max.snapshot.interval.ms": _JOURNAL,
    "metadata.max.retention.bytes": _JOURNAL,
    "metadata.max.retention.ms": _JOURNAL,
    "controller.performance.sample.period.ms": _METRICS,
    "controller.performance.always.log.threshold.ms": _METRICS,
    "bootstrap.controllers": "any node answers for the cluster: use bootstrap.servers",
    # logs
    "log.flush.scheduler.interval.ms": "each log is synced by its own timer: use log.flush.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms": "log starts are written with the recovery points: use "
    "log.flush.offset.checkpoint.interval.ms",
    "log.preallocate": "log files are not preallocated; their indexes are",
    "preallocate": "log files are not preallocated; their indexes are",
    "log.roll.jitter.ms": _JITTER,
    "log.roll.jitter.hours": _JITTER,
    "segment.jitter.ms": _JITTER,
    "log.initial.task.delay.ms": "the maintenance of logs starts with the node",
    "log.dir.failure.timeout.ms": "a node reports a failed disk to the controller with its heartbeat",
    "log.cleaner.enable": "compaction is always enabled: topics choose it by cleanup.policy",
    "log.cleaner.io.buffer.size": "compaction reads chunks of a fixed size",
    "log.cleaner.io.buffer.load.factor": "compaction sizes its map of keys by log.cleaner.dedupe.buffer.size alone",
    "log.cleaner.io.max.bytes.per.second": "compaction is not throttled",
    "log.message.format.version": "records are written in Kafka's format 2; older ones are read",
    "message.format.version": "records are written in Kafka's format 2; older ones are read",
    "log.message.downconversion.enable": "records are never converted to an older format",
    "message.downconversion.enable": "records are never converted to an older format",
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and .after.max.ms",
    "message.timestamp.difference.max.ms": "use message.timestamp.before.max.ms and .after.max.ms",
    "compression.gzip.level": _COMPRESSION,
    "compression.lz4.level": _COMPRESSION,
    "compression.zstd.level": _COMPRESSION,
    "producer.id.expiration.check.interval.ms": "expired producers are removed by the regular maintenance of logs",
    # replication
    "num.replica.fetchers": _PUSH,
    "replica.fetch.wait.max.ms": _PUSH,
    "replica.fetch.min.bytes": _PUSH,
    "replica.fetch.backoff.ms": _PUSH,
    "replica.fetch.response.max.bytes": _PUSH,
    "replica.selector.class": _CLASS,
    "leader.replication.throttled.replicas": _THROTTLED,
    "follower.replication.throttled.replicas": _THROTTLED,
    "unclean.leader.election.interval.ms": "where it is allowed, it happens immediately",
    "controlled.shutdown.max.retries": "use controlled.shutdown.timeout.ms",
    "controlled.shutdown.retry.backoff.ms": "use controlled.shutdown.timeout.ms",
    "server.max.startup.time.ms": "a node that cannot start exits with the reason",
    # groups and transactions
    "group.consumer.min.session.timeout.ms": _SESSION,
    "group.consumer.max.session.timeout.ms": _SESSION,
    "group.consumer.min.heartbeat.interval.ms": _HEARTBEAT,
    "group.consumer.max.heartbeat.interval.ms": _HEARTBEAT,
    "group.consumer.max.size": "one limit applies to all groups: use group.max.size",
    "group.consumer.migration.policy": "the nodes assign partitions in all groups: there is nothing to migrate from",
    "group.consumer.regex.refresh.interval.ms": "patterns are evaluated when topics are created or deleted",
    "group.coordinator.rebalance.protocols": "the nodes assign partitions in all groups",
    "group.initial.rebalance.delay.ms": "only partitions that move pause: there is no need to wait for members",
    "offsets.load.buffer.size": "offsets are loaded in chunks of a fixed size",
    "offsets.topic.compression.codec": "offsets are small: they are not compressed",
    "offsets.commit.required.acks": "offsets are committed with acks=all",
    "transaction.state.log.load.buffer.size": "transactions are loaded in chunks of a fixed size",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "each transaction has its own timer",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "each transactional id has its own timer",
    "transaction.partition.verification.enable": "transactions are always verified",
    "add.partitions.to.txn.retry.backoff.ms": "a partition joins its transaction when it is first written to",
    "add.partitions.to.txn.retry.backoff.max.ms": "a partition joins its transaction when it is first written to",
    # plug-ins
    "alter.config.policy.class.name": _CLASS,
    "create.topic.policy.class.name": _CLASS,
    "client.quota.callback.class": _CLASS,
    "principal.builder.class": _CLASS,
    "security.providers": _PEM,
    "config.providers": "a topic's settings are taken literally: only those of nodes and clients have providers",
    "metric.reporters": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "telemetry.max.bytes": _TELEMETRY,
    "enable.metrics.push": _TELEMETRY,
    "unstable.api.versions.enable": "a node has no unstable versions or features",
    "unstable.feature.versions.enable": "a node has no unstable versions or features",
    # clients
    "key.serializer": "it is an argument of the Python producer, key_serializer=",
    "value.serializer": "it is an argument of the Python producer, value_serializer=",
    "key.deserializer": "it is an argument of the Python consumer, key_deserializer=",
    "value.deserializer": "it is an argument of the Python consumer, value_deserializer=",
    "interceptor.classes": _CLASS,
    "metadata.max.idle.ms": "the metadata of unused topics expires by metadata.max.age.ms",
    "metadata.recovery.strategy": "a client that can reach no node always goes back to bootstrap.servers",
    "metadata.recovery.rebootstrap.trigger.ms": "a client that can reach no node always goes back to bootstrap.servers",
    "partitioner.availability.timeout.ms": "a partition without a leader is not chosen",
    "partition.assignment.strategy": "the nodes assign the partitions: use group.remote.assignor",
    "group.protocol": "the nodes assign partitions in all groups, as with Kafka's `consumer`",
    "allow.auto.create.topics": "only the nodes' auto.create.topics.enable controls it",
}


def why_not(name: str) -> str | None:
    """Why a Kafka setting has no effect here; None: the name is not in the table."""
    return _BY_NAME.get(name)


def why_not_family(name: str) -> str | None:
    """Why all settings of the name's family have no effect here; None: it is in no such family."""
    return next((reason for prefix, reason in _BY_PREFIX.items() if name.startswith(prefix)), None)
