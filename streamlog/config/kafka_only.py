"""Settings of Kafka that mean nothing here, each with the sentence that says why.

A file that has served a Kafka broker or client starts a node or client of ours: what it loses thereby is told, never
passed over in silence. Names are those of Kafka 4.2 and what earlier releases had in common use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LOOP: Final = "a node serves all its requests on one event loop: there are no threads to count"
_ONE_LISTENER: Final = "a node has one listener, for clients, nodes and the quorum alike"
_SASL: Final = "there is no SASL: a client shows a certificate or a bearer token"
_PEM: Final = (
    "TLS is gRPC's own, with keys and certificates in PEM: of Java's providers, stores and algorithms it has none"
)
_REMOTE: Final = "logs are on the nodes' own disks: there is no tiered storage"
_SHARE: Final = "there are no share groups"
_STREAMS: Final = "there are no streams groups: an application of Kafka Streams cannot join"
_METRICS: Final = "metrics are offered to Prometheus, without reporters or sampling windows"
_QUOTA_WINDOW: Final = "rates are measured over one second: the windows cannot be set"
_TIMERS: Final = "what waits is woken by its own timer and by what it waits for: there is no purgatory to purge"
_QUORUM: Final = (
    "the quorum replicates by streams that its leader keeps open: see controller.quorum.election.timeout.ms"
)
_JOURNAL: Final = "the quorum's journal is one file, replaced when a snapshot is made"
_PUSH: Final = (
    "a leader sends to its followers over one stream: they do not fetch, so there is nothing to wait or to thread"
)
_JITTER: Final = "segments close by the times of their own records: there is no jitter"
_SOCKET: Final = "connections are gRPC's own, which sizes its buffers itself"
_CLASS: Final = "classes of Java cannot be loaded"
_COMPRESSION: Final = "a node stores batches as the producer has compressed them; the producer has this setting"
_TELEMETRY: Final = "clients do not send metrics to the nodes"
_CONNECTIONS: Final = "connections are bounded in all and by address: see max.connections and max.connections.per.ip"
_SESSION: Final = (
    "one pair of bounds holds for all groups: see group.min.session.timeout.ms, group.max.session.timeout.ms"
)
_HEARTBEAT: Final = "one interval holds for all groups: see group.consumer.heartbeat.interval.ms"
_THROTTLED: Final = "replicas that move or catch up are throttled by the nodes' rates, without a list"

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
    "listener.name.": _ONE_LISTENER,
    "ssl.": _PEM,
    "confluent.": "that is a setting of Confluent's server",
    "internal.": "that is a setting of Kafka's own tests",
}
"""Whole families. A name in `_BY_NAME` goes before them, a setting of ours before both."""

_BY_NAME: Final[Mapping[str, str]] = {
    # roles and listeners
    "process.roles": "every node is a broker, and a controller where controller.quorum.voters names it",
    "broker.id": "a node has one number: use node.id",
    "broker.id.generation.enable": "a node has one number, which is given to it: use node.id",
    "reserved.broker.max.id": "a node has one number, which is given to it: use node.id",
    "controller.listener.names": _ONE_LISTENER,
    "control.plane.listener.name": _ONE_LISTENER,
    "inter.broker.listener.name": _ONE_LISTENER,
    "security.inter.broker.protocol": _ONE_LISTENER,
    "listener.security.protocol.map": _ONE_LISTENER,
    "early.start.listeners": _ONE_LISTENER,
    "host.name": "use listeners",
    "port": "use listeners",
    "advertised.host.name": "use advertised.listeners",
    "advertised.port": "use advertised.listeners",
    "inter.broker.protocol.version": "what nodes of different releases have in common they agree on themselves",
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
    "max.request.partition.size.limit": "an answer is cut at a number of partitions that cannot be set",
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
    "request.timeout.ms": "what a node asks of others has its own bounds; the clients have this setting",
    "max.connections.per.ip.overrides": _CONNECTIONS,
    "max.connection.creation.rate": _CONNECTIONS,
    "connection.failed.authentication.delay.ms": _SOCKET,
    "connections.max.reauth.ms": _SASL,
    "client.dns.lookup": "all addresses of a name are tried",
    # the quorum
    "controller.quorum.fetch.timeout.ms": _QUORUM,
    "controller.quorum.election.backoff.max.ms": _QUORUM,
    "controller.quorum.request.timeout.ms": _QUORUM,
    "controller.quorum.retry.backoff.ms": _QUORUM,
    "controller.quorum.append.linger.ms": _QUORUM,
    "controller.quorum.auto.join.enable": "a node votes when somebody makes it a voter, never of itself",
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
    "log.initial.task.delay.ms": "the upkeep of logs begins with the node",
    "log.dir.failure.timeout.ms": "a node tells the controller of a failed disk with its heartbeat",
    "log.cleaner.enable": "compaction is always there: a topic has it by cleanup.policy",
    "log.cleaner.io.buffer.size": "compaction reads whole pieces whose size cannot be set",
    "log.cleaner.io.buffer.load.factor": "compaction sizes its map of keys by log.cleaner.dedupe.buffer.size alone",
    "log.cleaner.io.max.bytes.per.second": "compaction is not throttled",
    "log.message.format.version": "records are written in Kafka's format 2; older ones are read",
    "message.format.version": "records are written in Kafka's format 2; older ones are read",
    "log.message.downconversion.enable": "records are never handed out in an older format",
    "message.downconversion.enable": "records are never handed out in an older format",
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and .after.max.ms",
    "message.timestamp.difference.max.ms": "use message.timestamp.before.max.ms and .after.max.ms",
    "compression.gzip.level": _COMPRESSION,
    "compression.lz4.level": _COMPRESSION,
    "compression.zstd.level": _COMPRESSION,
    "producer.id.expiration.check.interval.ms": "it is looked for such producers with the rest of the upkeep",
    # replication
    "num.replica.fetchers": _PUSH,
    "replica.fetch.wait.max.ms": _PUSH,
    "replica.fetch.min.bytes": _PUSH,
    "replica.fetch.backoff.ms": _PUSH,
    "replica.fetch.response.max.bytes": _PUSH,
    "replica.selector.class": _CLASS,
    "leader.replication.throttled.replicas": _THROTTLED,
    "follower.replication.throttled.replicas": _THROTTLED,
    "unclean.leader.election.interval.ms": "where it is allowed, it happens at once",
    "controlled.shutdown.max.retries": "use controlled.shutdown.timeout.ms",
    "controlled.shutdown.retry.backoff.ms": "use controlled.shutdown.timeout.ms",
    "server.max.startup.time.ms": "a node that cannot start ends with its reason",
    # groups and transactions
    "group.consumer.min.session.timeout.ms": _SESSION,
    "group.consumer.max.session.timeout.ms": _SESSION,
    "group.consumer.min.heartbeat.interval.ms": _HEARTBEAT,
    "group.consumer.max.heartbeat.interval.ms": _HEARTBEAT,
    "group.consumer.max.size": "one limit holds for all groups: use group.max.size",
    "group.consumer.migration.policy": "the nodes assign partitions in all groups: there is nothing to migrate from",
    "group.consumer.regex.refresh.interval.ms": "patterns are looked at again when topics come and go",
    "group.coordinator.rebalance.protocols": "the nodes assign partitions in all groups",
    "group.initial.rebalance.delay.ms": "only what moves pauses, so nobody has to wait for late members",
    "offsets.load.buffer.size": "offsets are loaded in whole pieces whose size cannot be set",
    "offsets.topic.compression.codec": "offsets are small: they are not compressed",
    "offsets.commit.required.acks": "offsets are committed with acks=all",
    "transaction.state.log.load.buffer.size": "transactions are loaded in whole pieces whose size cannot be set",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "each transaction has its own timer",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "each transactional id has its own timer",
    "transaction.partition.verification.enable": "it is always verified that a transaction is open",
    "add.partitions.to.txn.retry.backoff.ms": "a partition joins its transaction when it is first written to",
    "add.partitions.to.txn.retry.backoff.max.ms": "a partition joins its transaction when it is first written to",
    # plug-ins
    "alter.config.policy.class.name": _CLASS,
    "create.topic.policy.class.name": _CLASS,
    "client.quota.callback.class": _CLASS,
    "principal.builder.class": _CLASS,
    "security.providers": _PEM,
    "config.providers": "values stand in the file as they are: nothing is looked up elsewhere",
    "metric.reporters": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "telemetry.max.bytes": _TELEMETRY,
    "enable.metrics.push": _TELEMETRY,
    "unstable.api.versions.enable": "what a node offers is finished",
    "unstable.feature.versions.enable": "what a node offers is finished",
    # clients
    "key.serializer": "keys are bytes, or what the program makes bytes of",
    "value.serializer": "values are bytes, or what the program makes bytes of",
    "key.deserializer": "keys are bytes, or what the program makes of them",
    "value.deserializer": "values are bytes, or what the program makes of them",
    "interceptor.classes": _CLASS,
    "metadata.max.idle.ms": "topics that are no longer used are forgotten with metadata.max.age.ms",
    "metadata.recovery.strategy": "a client that loses all nodes always asks bootstrap.servers anew",
    "metadata.recovery.rebootstrap.trigger.ms": "a client that loses all nodes always asks bootstrap.servers anew",
    "partitioner.availability.timeout.ms": "a partition without a leader is not chosen",
    "partition.assignment.strategy": "the nodes assign the partitions: use group.remote.assignor",
    "group.protocol": "the nodes assign partitions in all groups, as with Kafka's `consumer`",
    "allow.auto.create.topics": "only the nodes' auto.create.topics.enable says whether topics come of themselves",
}


def why_not(name: str) -> str | None:
    """Why a setting of Kafka has no meaning here; None for a name that does not stand in the table."""
    return _BY_NAME.get(name)


def why_not_family(name: str) -> str | None:
    """The same for a name of a family that has no meaning here as a whole."""
    return next((reason for prefix, reason in _BY_PREFIX.items() if name.startswith(prefix)), None)
