"""Calls: a request that is refused as such, a queue that is full, an answer that does not come."""

from __future__ import annotations

from streamlog.errors.base import StreamlogError


class UnsupportedVersionError(StreamlogError):
    code = "UNSUPPORTED_VERSION"


class InvalidRequestError(StreamlogError):
    """An argument outside its range. Details: `field`, `limit`."""

    code = "INVALID_REQUEST"


class SchemaRegistryError(InvalidRequestError):
    """A schema registry refuses the client (wrong credentials, a redirection), or its answer is not a registry's.
    Raised by the client; the answer says nothing about the record that needs the schema. Details: `limit` (the HTTP
    status).
    """

    code = "SCHEMA_REGISTRY_ERROR"


class RequestTooLargeError(StreamlogError):
    """A request message exceeds its method's limit. Details: `limit` (bytes)."""

    code = "REQUEST_TOO_LARGE"


class ThrottledError(StreamlogError):
    """A bounded queue or buffer is full, a quota exceeded, or a login tried too often. Details: `limit`, with its unit
    in the message; `retry_after_ms`.
    """

    code = "THROTTLED"
    retriable = True


class OutcomeUnknownError(StreamlogError):
    """The command may or may not have been executed; retry it with the same id."""

    code = "OUTCOME_UNKNOWN"
    retriable = True


class BrokerNotAvailableError(StreamlogError):
    """The node that a call had to be forwarded to is down or did not answer (details: `node`); or a client could
    reach none of the nodes that it knows.
    """

    code = "BROKER_NOT_AVAILABLE"
    retriable = True


class NetworkError(StreamlogError):
    """No connection, or it broke. Raised by the caller; the request may have been executed."""

    code = "NETWORK_EXCEPTION"
    retriable = True


class SslAuthenticationError(NetworkError):
    """A node listens, but refuses or fails the handshake of TLS: certificates or `security.protocol` do not fit. Raised
    by the caller; nothing was sent. Not retriable where it is the caller that refuses the node's certificate.
    """

    code = "SSL_AUTHENTICATION_FAILED"


class RequestTimedOutError(StreamlogError):
    """The answer did not arrive in time; the message names the request. Raised by the caller; the request may have
    been executed.
    """

    code = "REQUEST_TIMED_OUT"
    retriable = True


class ClientClosedError(StreamlogError):
    """A producer, consumer or admin client was closed before the call, or during it."""

    code = "CLIENT_CLOSED"


class UnknownServerError(StreamlogError):
    """A code of a newer release that this client does not know. Details: `code`, `retriable` as sent by the node."""

    code = "UNKNOWN_SERVER_ERROR"
