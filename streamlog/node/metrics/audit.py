"""The audit log: events, and those that are not in it. All are 0 where none is written."""

from __future__ import annotations

from streamlog.metrics.families import Family, counter
from streamlog.ports import AuditSink
from streamlog.services.audit.trail import ALLOWED, REFUSED, AuditTrail


def audit_families(trail: AuditTrail | None, file: AuditSink | None, topic: AuditSink | None) -> list[Family]:
    events = {ALLOWED: 0, REFUSED: 0} if trail is None else trail.events
    sinks = {"file": file, "topic": topic}
    return [
        counter(
            "streamlog_audit_events_total",
            "Events for the audit log.",
            [((result,), count) for result, count in events.items()],
            ("result",),
        ),
        counter(
            "streamlog_audit_written_total",
            "Events in the audit log's file (audit.log.file) and topic (audit.log.topic).",
            [((name,), 0 if sink is None else sink.written) for name, sink in sinks.items()],
            ("sink",),
        ),
        counter(
            "streamlog_audit_dropped_total",
            "Events that are missing there, since the queue was full or writing failed.",
            [((name,), 0 if sink is None else sink.dropped) for name, sink in sinks.items()],
            ("sink",),
        ),
    ]
