"""Authentication and authorization, with Kafka's codes."""

from __future__ import annotations

from streamlog.errors.base import StreamlogError


class SaslAuthenticationError(StreamlogError):
    """The user's name and password, or the token, are wrong, or missing where they are needed."""

    code = "SASL_AUTHENTICATION_FAILED"


class TopicAuthorizationError(StreamlogError):
    """The principal may not do this with the topic, which may not even exist."""

    code = "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationError(StreamlogError):
    code = "GROUP_AUTHORIZATION_FAILED"


class TransactionalIdAuthorizationError(StreamlogError):
    code = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class ClusterAuthorizationError(StreamlogError):
    code = "CLUSTER_AUTHORIZATION_FAILED"


class DuplicateResourceError(StreamlogError):
    """A user of this name exists."""

    code = "DUPLICATE_RESOURCE"


class ResourceNotFoundError(StreamlogError):
    """There is no user of this name."""

    code = "RESOURCE_NOT_FOUND"
