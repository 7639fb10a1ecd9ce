"""Whether authentication failed, of the client or of the nodes: then retries do not help, as in Kafka's clients.

SaslAuthenticationError    a node: password, token, or a user that was deleted. After too many failed logins, which may
                           be others' guesses, it is ThrottledError, which is retried
SslAuthenticationError     this client: the node's certificate. `retriable` where the cause is unknown: a node that
                           does not trust the client's certificate closes the connection like one that stops
"""

from __future__ import annotations

from streamlog.errors import SaslAuthenticationError, SslAuthenticationError, StreamlogError


def is_authentication_failure(error: StreamlogError) -> bool:
    return isinstance(error, SaslAuthenticationError | SslAuthenticationError) and not error.retriable
