"""The cluster: registration of nodes, the metadata quorum and its voters, features."""

from __future__ import annotations

from streamlog.errors.base import StreamlogError


class StaleBrokerEpochError(StreamlogError):
    """The broker epoch is stale: the node, or another one with its id, has registered since."""

    code = "STALE_BROKER_EPOCH"


class DuplicateBrokerIdError(StreamlogError):
    """An active node has this id. Retriable: the session of a node that failed expires."""

    code = "DUPLICATE_BROKER_ID"
    retriable = True


class BrokerIdNotRegisteredError(StreamlogError):
    code = "BROKER_ID_NOT_REGISTERED"


class FeatureUpdateFailedError(StreamlogError):
    """Details: `field`, `limit` (the level that all nodes support)."""

    code = "FEATURE_UPDATE_FAILED"


class NotControllerError(StreamlogError):
    """Not the leader of the metadata quorum. Details: `leader` where known."""

    code = "NOT_CONTROLLER"
    retriable = True


class QuorumUnavailableError(StreamlogError):
    code = "QUORUM_UNAVAILABLE"
    retriable = True


class DuplicateVoterError(StreamlogError):
    """The node is a voter already (KIP-853). Details: `voter`."""

    code = "DUPLICATE_VOTER"


class VoterNotFoundError(StreamlogError):
    """The node is not a voter (KIP-853). Details: `voter`."""

    code = "VOTER_NOT_FOUND"


class VoterChangeInProgressError(StreamlogError):
    """Voters are changed one at a time, and the previous change is not complete. Details: `voter`, which is still to be
    added.
    """

    code = "VOTER_CHANGE_IN_PROGRESS"
    retriable = True
