"""Errors for the user: one sentence with the problem and what to do. Never a traceback.

The node's message has the problem; the remedy in terms of this tool is added here. Exit code 1: failed; 2: wrong usage
(click's own); 130: Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from typing import Final

import click

from streamlog import errors
from streamlog.errors import StreamlogError
from streamlog.printable import escaped

FAILED: Final = 1
INTERRUPTED: Final = 130
NAMED_MAX: Final = 5
"""Subjects that one error names."""

_NOT_WRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# What to do, for errors whose message does not say it.
_REMEDIES: Final[dict[type[StreamlogError], str]] = {
    errors.BrokerNotAvailableError: "give the address of a running node with --bootstrap-server, or a --profile, or "
    "start a local cluster with 'streamlogctl local start --dir DIR'",
    errors.SslAuthenticationError: "set security.protocol and ssl.* in the file of --command-config",
    errors.NetworkError: "check that the node is running, and try again",
    errors.RequestTimedOutError: "check whether the command was executed, or wait longer with --request-timeout-ms",
    errors.TopicAlreadyExistsError: "choose another name, or see the topic with 'streamlogctl topic describe'",
    errors.UnknownTopicOrPartitionError: "list the topics with 'streamlogctl topic list'",
    errors.UnknownTopicIdError: "list the topics with 'streamlogctl topic describe'",
    errors.InvalidReplicationFactorError: "give fewer replicas with --replication-factor, or start more nodes",
    errors.PolicyViolationError: "see the topic's settings with 'streamlogctl config describe --topic TOPIC'",
    errors.TopicDeletionDisabledError: "set delete.topic.enable=true in the nodes' server.properties and restart them",
    errors.LeaderNotAvailableError: "see which nodes are down with 'streamlogctl cluster describe', and start them",
    errors.EligibleLeadersNotAvailableError: "start the nodes that have an in-sync replica, or, if losing records is "
    "acceptable, elect with --election-type unclean",
    errors.PreferredLeaderNotAvailableError: "wait until the first replica is in sync: 'streamlogctl topic describe'",
    errors.NotEnoughReplicasError: "start the nodes that are down: 'streamlogctl cluster describe'",
    errors.BrokerIdNotRegisteredError: "list the nodes with 'streamlogctl cluster describe'",
    errors.NoReassignmentInProgressError: "list the reassignments with 'streamlogctl partition reassign --list'",
    errors.ReassignmentInProgressError: "wait for it, or cancel it with 'streamlogctl partition reassign "
    "TOPIC-PARTITION --cancel'",
    errors.QuorumUnavailableError: "start more voters: a majority of them must be running",
    errors.NotControllerError: "try again in a moment: the metadata quorum is electing its leader",
    errors.VoterNotFoundError: "list the voters with 'streamlogctl cluster quorum'",
    errors.DuplicateVoterError: "list the voters with 'streamlogctl cluster quorum'",
    errors.GroupIdNotFoundError: "list the groups with 'streamlogctl group list'",
    errors.GroupNotEmptyError: "stop its members first: 'streamlogctl group describe GROUP --members'",
    errors.GroupSubscribedToTopicError: "stop its members first: 'streamlogctl group describe GROUP --members'",
    errors.CoordinatorNotAvailableError: "see which nodes are down with 'streamlogctl cluster describe'",
    errors.NoOffsetForPartitionError: "use --from-beginning, or set offsets with 'streamlogctl group reset-offsets "
    "GROUP --all-topics --to-earliest'",
    errors.InvalidRegularExpressionError: "see RE2's syntax",
    errors.OffsetOutOfRangeError: "start at an offset in the log: --from-beginning, or another --offset",
    errors.CorruptBatchError: "start after it with --partition and --offset, or skip it with --on-corrupt-batch skip",
    errors.OutcomeUnknownError: "check whether the command was executed before you try again",
    errors.ThrottledError: "try again in a moment",
}


# What to do, for those of an error's messages that have these words; else by its type, as above.
_REMEDIES_BY_WORDS: Final[dict[type[StreamlogError], tuple[tuple[str, str], ...]]] = {
    errors.InvalidConfigError: (
        ("is not a setting of topics", "list them with 'streamlogctl config describe --topic TOPIC --all'"),
        ("is not a setting of nodes", "list them with 'streamlogctl config describe --broker 1 --all'"),
        ("is not a setting of", "docs/configuration.md lists them"),
    ),
    errors.InvalidReplicaAssignmentError: tuple(
        (words, "see the active nodes with 'streamlogctl cluster describe'")
        for words in ("is not registered", "is not active", "is being drained", "of these nodes is active")
    ),
    errors.UnknownTopicOrPartitionError: tuple(
        (words, "see its partitions with 'streamlogctl topic describe TOPIC'")
        for words in ("has no partition", "has a partition", "is not one of them")
    ),
    errors.RequestTimedOutError: (
        ("Repeat the deletion", ""),  # the remedy itself
        *(
            (
                words,
                "see which nodes are down with 'streamlogctl cluster describe', and start them, or wait longer with "
                "--request-timeout-ms",
            )
            for words in ("were not found within", "was not known within")
        ),
    ),
    errors.CoordinatorNotAvailableError: (
        (
            "has not been created yet",
            "the cluster creates it at the first use of a group or a transactional id: list those that exist with "
            "'streamlogctl group list' and 'streamlogctl transaction list'",
        ),
    ),
}


_PLACE_OF_ARGUMENTS: Final = "argument: "  # as streamlog.config.load, which most commands start faster without

# Limits that are the remedy themselves.
_PLAIN_LIMITS: Final[dict[type[StreamlogError], tuple[int, ...]]] = {errors.InvalidReplicationFactorError: (1,)}


def sentence(error: StreamlogError) -> str:
    """The problem, and what to do."""
    message = error.message.rstrip(".")
    # Invalid settings are listed one to a line; any other error is one line, whatever it quotes.
    if isinstance(error, errors.InvalidConfigError):
        message = "\n".join(escaped(without_place(line)) for line in message.split("\n"))
    else:
        message = escaped(message)
    remedy = _remedy(error)
    plain = error.details.get("limit") in _PLAIN_LIMITS.get(type(error), ())
    # Some messages of nodes say it already.
    if not remedy or plain or "streamlogctl" in message or "before you retry" in message:
        return message if message.endswith("?") else f"{message}."
    if message.endswith("?"):
        return f"{message} {remedy[0].upper()}{remedy[1:]}."
    return f"{message}: {remedy}."


def without_place(text: str) -> str:
    """A client's problem with a setting that no file has: "argument", of its constructor, says nothing to the user."""
    return text.removeprefix(_PLACE_OF_ARGUMENTS)


def _remedy(error: StreamlogError) -> str:
    """Empty: none is known."""
    if isinstance(error, errors.BrokerNotAvailableError) and "node" in error.details:  # another node has answered
        return _REMEDIES[errors.LeaderNotAvailableError]
    for kind in type(error).__mro__:
        for words, remedy in _REMEDIES_BY_WORDS.get(kind, ()):
            if words in error.message:
                return remedy
        if kind in _REMEDIES:
            return _REMEDIES[kind]
    return ""


def failed(error: StreamlogError) -> click.ClickException:
    return click.ClickException(sentence(error))


def not_utf8(error: UnicodeEncodeError) -> Exception:
    """An argument's byte that is not UTF-8 is a lone surrogate in Python, which JSON can have as well. The text is not
    shown, since it may be a secret. Other encodings are those of the output.
    """
    if error.encoding != "utf-8":
        return error
    character = ascii(error.object[error.start])
    return click.UsageError(
        f"A name or value has {character} as its character {error.start + 1}, which is not UTF-8: give it in UTF-8."
    )


def end_if_output_failed(error: OSError, *, is_closed: bool) -> None:
    """Ends the process if standard output cannot be written. What is left of it is dropped, since that would fail again
    at the end. A closed pipe is click's.
    """
    is_of_output = error.errno in _NOT_WRITTEN or (is_closed and error.errno == errno.EBADF)
    if is_of_output and error.filename is None:  # files have names
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        click.ClickException(f"standard output cannot be written: {error.strerror}").show()
        sys.exit(FAILED)


def complain(error: StreamlogError, about: str = "") -> None:
    """Prints one of several errors to standard error."""
    sys.stdout.flush()  # keeps the order of the two streams on a terminal
    words = sentence(error)
    # A message that names its subject itself is a whole sentence.
    named = f"'{about}'" in error.message or error.message.replace("'", "").startswith((f"{about} ", f"{about}: "))
    subject = "" if not about or named else f"{escaped(about)}: "
    click.echo(f"Error: {subject}{words}", err=True)


def end_with(complaints: Iterable[tuple[str, StreamlogError | None]]) -> None:
    """Prints all errors, each once with its subjects, and exits with FAILED if there are any."""
    found: dict[str, tuple[StreamlogError, list[str]]] = {}
    for about, error in complaints:
        if error is not None:
            found.setdefault(sentence(error), (error, []))[1].append(about)
    for error, subjects in found.values():
        more = f" and {len(subjects) - NAMED_MAX} more" if len(subjects) > NAMED_MAX else ""
        complain(error, ", ".join(filter(None, subjects[:NAMED_MAX])) + more)
    if found:
        sys.exit(FAILED)


class Interrupted(click.ClickException):
    """Ctrl-C: ends the line on which the terminal shows ^C, without a message."""

    exit_code = INTERRUPTED

    def __init__(self) -> None:
        super().__init__("")

    def show(self, file: object = None) -> None:
        click.echo(err=True)
