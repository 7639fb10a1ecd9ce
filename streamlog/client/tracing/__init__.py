"""OpenTelemetry spans of a client (`tracing.enable=true`, `pip install 'streamlog[otel]'`).

    from streamlog.client.tracing import processing, record_context

    send     "send TOPIC", PRODUCER: from the call to the acknowledgement. Its context is put into the record's headers
             `traceparent` and `tracestate`, instead of those that the caller gave. `send_many` has one span for all
             its records
    poll     "poll TOPIC", CLIENT: a call that returned records, or each record of a loop; linked to the spans in their
             headers. A poll that returned nothing has none
    process  "process TOPIC", CONSUMER: the block of `processing(record)`, a child of the span in the record's headers
    commit   "commit TOPIC", CLIENT: a commit of offsets, automatic ones too

Names and attributes are those of OpenTelemetry's semantic conventions for messaging. Spans go to the TracerProvider
that the program has set; without one, only a context that is current is passed on. Baggage is not put into headers: a
record is kept, and read by others than the callee.

Off, nothing of this is imported. On, the methods of one client object are replaced by traced ones, so that `send`,
`poll` and the loop of an untraced client have no branch and no call for it.

Bounds: 55 bytes of `traceparent` and at most 512 of `tracestate` in a record, at most 128 links of a span. Invalid
headers are ignored.

tracer               names, attributes, and how spans end
sending, polling     spans of sends; of polls and commits
calls                the current context in unary calls
"""

from streamlog.client.tracing.contexts import record_context
from streamlog.client.tracing.processing import processing

__all__ = ["processing", "record_context"]
