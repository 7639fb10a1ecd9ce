"""A node's audit log, from its settings (audit.log.*)."""

from __future__ import annotations

from streamlog.config import Config
from streamlog.config.settings import security_settings as security
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId
from streamlog.node.authorization import made_mapping
from streamlog.ports import Ports
from streamlog.services.audit.audit_topic import AuditTopic
from streamlog.services.audit.audited_methods import AuditKind
from streamlog.services.audit.trail import AuditTrail


def made_audit_topic(config: Config, view: MetadataView, ports: Ports) -> AuditTopic | None:
    topic = config[security.AUDIT_LOG_TOPIC]
    return AuditTopic(topic, view, ports) if topic else None


def made_trail(
    config: Config, node_id: BrokerId, view: MetadataView, ports: Ports, topic: AuditTopic | None
) -> AuditTrail | None:
    """None without a file and a topic: calls pay nothing then."""
    sinks = [sink for sink in (ports.audit, topic) if sink is not None]
    if not sinks:
        return None
    return AuditTrail(
        node_id,
        view,
        ports.clock,
        made_mapping(config),
        [AuditKind(kind) for kind in config[security.AUDIT_LOG_EVENTS]],
        sinks,
        own_topic="" if topic is None else topic.topic,
    )
