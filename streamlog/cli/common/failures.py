"""How an error reaches a person: one sentence that says what is wrong and what to do. Never a traceback.

The node says what is wrong; what to do about it with this tool is known here. Exit code 1: it could not be done; 2:
wrong usage (click's own); 130: Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

import click

from streamlog import errors
from streamlog.errors import StreamlogError
from streamlog.printable import escaped

FAILED: Final = 1
INTERRUPTED: Final = 130

# What to do, where the error itself does not say it. `{name}` of the details can be used.
_REMEDIES: Final[dict[type[StreamlogError], str]] = {
    errors.BrokerNotAvailableError: "name one that runs with --bootstrap-server, or start some with "
    "'streamlogctl local start --dir DIR'",
    errors.NetworkError: "see whether the node runs, and ask again",
    errors.RequestTimedOutError: "look whether it was done all the same, or wait longer with --request-timeout-ms",
    errors.TopicAlreadyExistsError: "choose another name, or see what there is with 'streamlogctl topic describe'",
    errors.UnknownTopicOrPartitionError: "see what there is with 'streamlogctl topic list'",
    errors.UnknownTopicIdError: "see what there is with 'streamlogctl topic describe'",
    errors.InvalidReplicationFactorError: "give fewer replicas with --replication-factor, or start more nodes",
    errors.InvalidReplicaAssignmentError: "see which nodes live with 'streamlogctl cluster describe'",
    errors.InvalidConfigError: "see what can be set with 'streamlogctl config describe --all'",
    errors.TopicDeletionDisabledError: "set delete.topic.enable=true in the nodes' server.properties and restart them",
    errors.LeaderNotAvailableError: "see which nodes live with 'streamlogctl cluster describe', and start those that "
    "are missing",
    errors.EligibleLeadersNotAvailableError: "start the nodes that have a replica in sync, or, where losing records is "
    "better than waiting, elect with --election-type unclean",
    errors.PreferredLeaderNotAvailableError: "wait until the first replica is in sync: 'streamlogctl topic describe'",
    errors.NotEnoughReplicasError: "start the nodes that are missing: 'streamlogctl cluster describe'",
    errors.BrokerIdNotRegisteredError: "see which nodes there are with 'streamlogctl cluster describe'",
    errors.NoReassignmentInProgressError: "see what moves with 'streamlogctl partition reassign --list'",
    errors.ReassignmentInProgressError: "wait for it, or cancel it with 'streamlogctl partition reassign --cancel'",
    errors.QuorumUnavailableError: "start the voters that are missing, for a majority of them must run",
    errors.NotControllerError: "ask again in a moment: the metadata quorum is electing its leader",
    errors.VoterNotFoundError: "see who votes with 'streamlogctl cluster quorum'",
    errors.DuplicateVoterError: "see who votes with 'streamlogctl cluster quorum'",
    errors.GroupIdNotFoundError: "see what there is with 'streamlogctl group list'",
    errors.GroupNotEmptyError: "stop its members first: 'streamlogctl group describe --members'",
    errors.GroupSubscribedToTopicError: "stop its members first: 'streamlogctl group describe --members'",
    errors.CoordinatorNotAvailableError: "see which nodes live with 'streamlogctl cluster describe'",
    errors.NoOffsetForPartitionError: "begin with --from-beginning, or 'streamlogctl group reset-offsets'",
    errors.InvalidRegularExpressionError: "see RE2's syntax",
    errors.OffsetOutOfRangeError: "begin inside the log: --from-beginning, or another --offset",
    errors.CorruptBatchError: "begin behind it with --partition and --offset, or give --on-corrupt-batch skip",
    errors.OutcomeUnknownError: "look whether it was done before you ask again",
    errors.ThrottledError: "ask again in a moment",
}


def sentence(error: StreamlogError) -> str:
    """What is wrong, and what to do."""
    message = error.message.rstrip(".")
    # Settings are told one a line; else an error is one, whatever it quotes.
    if isinstance(error, errors.InvalidConfigError):
        message = "\n".join(map(escaped, message.split("\n")))
    else:
        message = escaped(message)
    remedy = next((_REMEDIES[kind] for kind in type(error).__mro__ if kind in _REMEDIES), "")
    if not remedy or "streamlogctl" in message:  # some nodes' messages name the command already
        return message if message.endswith("?") else f"{message}."
    if message.endswith("?"):
        return f"{message} {remedy[0].upper()}{remedy[1:]}."
    return f"{message}: {remedy}."


def failed(error: StreamlogError) -> click.ClickException:
    return click.ClickException(sentence(error))


def complain(error: StreamlogError, about: str = "") -> None:
    """One of several errors, to standard error."""
    sys.stdout.flush()  # so that the two streams keep their order where they go to one place
    click.echo(f"Error: {about and escaped(about) + ': '}{sentence(error)}", err=True)


def end_with(complaints: Iterable[tuple[str, StreamlogError | None]]) -> None:
    """Ends the command with FAILED where anything failed, each told with what it is about."""
    found = [(about, error) for about, error in complaints if error is not None]
    for about, error in found:
        complain(error, about)
    if found:
        sys.exit(FAILED)


class Interrupted(click.ClickException):
    """Ctrl-C: the line that the terminal shows ^C on is ended, and nothing else said."""

    exit_code = INTERRUPTED

    def __init__(self) -> None:
        super().__init__("")

    def show(self, file: object = None) -> None:
        click.echo(err=True)
