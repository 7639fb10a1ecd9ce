"""Which cluster streamlogctl speaks to, and what it says when that does not answer."""

from __future__ import annotations

import socket
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streamlog.cli.common import session, target
from streamlog.cli.common.failures import end_with, sentence
from streamlog.cli.main import main
from streamlog.errors import (
    BrokerNotAvailableError,
    GroupSubscribedToTopicError,
    InvalidConfigError,
    InvalidReplicaAssignmentError,
    InvariantError,
    OutcomeUnknownError,
    QuorumUnavailableError,
    RequestTimedOutError,
    StreamlogError,
    UnknownTopicOrPartitionError,
    all_errors,
)
from tests.cli.served import USAGE, ServedCluster, refused


def test_the_option_goes_before_the_environment(served: ServedCluster) -> None:
    done = served.run("topic", "list", "--bootstrap-server", "127.0.0.1:1,127.0.0.1:2")
    assert "127.0.0.1:1, 127.0.0.1:2" in refused(done)
    done = CliRunner().invoke(main, ["topic", "list", "--bootstrap-server", f"127.0.0.1:1,{served.address}"])
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["topic list", "group delete-offsets g --topic t", "debug bundle"])
def test_no_node_answers(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "UNREACHABLE_MS", 200)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        said = refused(CliRunner().invoke(main, [*command.split(), "--bootstrap-server", address]))
    assert said.startswith("Error: ")
    assert f"no node answers at {address}" in said
    assert "streamlogctl local start" in said
    # What this machine knows is in the bundle all the same.
    bundles = list(tmp_path.glob("streamlog-debug-*.zip"))
    assert len(bundles) == (command == "debug bundle")


@pytest.mark.parametrize(("lost", "more"), [("No metadata quorum: 1 of 3 voters answers", True), ("", False)])
def test_an_error_of_records_says_that_there_is_no_quorum(
    lost: str, more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost_quorum(_: target.Target) -> str:
        return lost

    async def work() -> None:
        raise RequestTimedOutError("the offsets of t-0 were not found within 30 s: no connection to node1:9092")

    monkeypatch.setattr(session, "lost_quorum", lost_quorum)
    to = target.Target(servers=("node1:9092",), request_timeout_ms=30_000)
    with pytest.raises(click.ClickException) as raised:
        session.finish_with_records(to, work())
    said = raised.value.message
    assert said.startswith("the offsets of t-0 were not found within 30 s: no connection to node1:9092")
    assert said.endswith(f". {lost}." if more else "or wait longer with --request-timeout-ms.")
    assert "executed" not in said, "it was a read"


@pytest.mark.parametrize("servers", ["nohost", "host:0", "host:99999", ":9092", "a b:1"])
def test_what_is_no_address(servers: str) -> None:
    done = CliRunner().invoke(main, ["topic", "list", "--bootstrap-server", servers])
    assert done.exit_code == USAGE
    assert repr(servers) in done.stderr


def test_settings_of_a_file(served: ServedCluster, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=orders\nretry.backoff.msx=5\n")
    done = served.run("topic", "list", "--command-config", str(file))
    assert done.exit_code == 0
    assert done.stderr.startswith("Warning: ")
    assert "retry.backoff.ms" in done.stderr
    file.write_text("security.protocol=SSL\n")
    done = served.run("topic", "list", "--command-config", str(file))
    assert done.exit_code == 1
    assert "security.protocol=SSL: needs ssl.truststore.location" in done.stderr


def test_a_command_that_makes_clients_again_and_again_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    to = target.Target(servers=("node1:9092",), request_timeout_ms=1, from_file={"isolation.level": "read_committed"})
    with click.Context(main).scope():
        for _ in range(2):
            session.open_admin(to)
    [said] = capsys.readouterr().err.splitlines()
    assert said == "Warning: isolation.level is a setting of consumers, not of admin clients"


def test_no_answer_in_time(served: ServedCluster) -> None:
    served.cluster.fails_with = [QuorumUnavailableError("no majority of the voters answers")] * 10_000
    said = refused(served.run("topic", "list", "--request-timeout-ms", "1000"))
    assert "no majority of the voters answers" in said  # also where the last attempt had no time for its answer


@pytest.mark.parametrize("kind", all_errors().values(), ids=lambda kind: kind.__name__)
def test_every_error_is_one_sentence(kind: type[StreamlogError]) -> None:
    said = sentence(kind.restored("what is wrong", {}))
    assert said.startswith("what is wrong")
    assert said.endswith(".")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            InvalidConfigError("'retention' is not a setting of topics; did you mean retention.ms?"),
            "'retention' is not a setting of topics; did you mean retention.ms? List them with 'streamlogctl config "
            "describe --topic TOPIC --all'.",
        ),
        (
            InvalidConfigError("argument: linger.ms='x': must be a whole number"),
            "linger.ms='x': must be a whole number.",
        ),
        (
            InvalidConfigError("log.dirs cannot be changed while the node runs: set it in server.properties"),
            "log.dirs cannot be changed while the node runs: set it in server.properties.",
        ),
        (
            InvalidReplicaAssignmentError("replicas [1, 1]: a node is named twice"),
            "replicas [1, 1]: a node is named twice.",
        ),
        (
            InvalidReplicaAssignmentError("replicas [1, 9]: node 9 is not registered"),
            "replicas [1, 9]: node 9 is not registered: see the active nodes with 'streamlogctl cluster describe'.",
        ),
        (
            UnknownTopicOrPartitionError("topic orders has no partition 7: it has 3, numbered from 0"),
            "topic orders has no partition 7: it has 3, numbered from 0: see its partitions with 'streamlogctl topic "
            "describe TOPIC'.",
        ),
        (
            RequestTimedOutError(
                "t-0: the leader has deleted the records before offset 5; not yet confirmed by node 3: connection "
                "refused. Repeat the deletion when they answer"
            ),
            "t-0: the leader has deleted the records before offset 5; not yet confirmed by node 3: connection refused. "
            "Repeat the deletion when they answer.",
        ),
    ],
)
def test_what_to_do_fits_what_happened(error: StreamlogError, said: str) -> None:
    assert sentence(error) == said


def test_a_remedy_is_not_repeated() -> None:
    error = QuorumUnavailableError("there is no majority: see 'streamlogctl cluster quorum'")
    assert sentence(error) == "there is no majority: see 'streamlogctl cluster quorum'."
    unknown = OutcomeUnknownError("the controller did not answer in time: check before you retry")
    assert sentence(unknown) == "the controller did not answer in time: check before you retry."


def test_a_subject_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    error = QuorumUnavailableError("t-0: there is no majority: see 'streamlogctl cluster quorum'")
    with pytest.raises(SystemExit):
        end_with([("t-0", error)])
    assert capsys.readouterr().err == "Error: t-0: there is no majority: see 'streamlogctl cluster quorum'.\n"


def test_parts_of_a_call_that_fail_without_a_quorum_say_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def lost_quorum(_: target.Target) -> str:
        return "No metadata quorum: 1 of 3 voters answers"

    monkeypatch.setattr(session, "lost_quorum", lost_quorum)
    to = target.Target(servers=("node1:9092",), request_timeout_ms=30_000)
    session.say_lost_quorum(to, [None, UnknownTopicOrPartitionError("there is no topic t")])
    assert capsys.readouterr().err == "", "a quorum would not help"
    session.say_lost_quorum(to, [None, *[BrokerNotAvailableError("node 3 did not respond", node=3)] * 2])
    assert capsys.readouterr().err == "No metadata quorum: 1 of 3 voters answers.\n"


def test_a_node_that_another_one_did_not_reach(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        end_with([("node 1", BrokerNotAvailableError("node 1 did not respond: no connection to a:1", node=1))])
    assert capsys.readouterr().err == (
        "Error: node 1 did not respond: no connection to a:1: see which nodes are down with 'streamlogctl cluster "
        "describe', and start them.\n"
    )


def test_an_error_of_several_subjects_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    kept = GroupSubscribedToTopicError.of("my group", "orders")
    other = QuorumUnavailableError("there is no majority: see 'streamlogctl cluster quorum'")
    with pytest.raises(SystemExit):
        end_with([*((f"orders-{number}", kept) for number in range(7)), ("clicks-0", None), ("clicks-1", other)])
    assert capsys.readouterr().err.splitlines() == [
        "Error: orders-0, orders-1, orders-2, orders-3, orders-4 and 2 more: Group 'my group' is subscribed to topic "
        "'orders', so its offsets there are kept; stop its members first (list them: streamlogctl group describe "
        "'my group' --members).",
        "Error: clicks-1: there is no majority: see 'streamlogctl cluster quorum'.",
    ]
    assert not issubclass(InvariantError, StreamlogError)


def test_names_of_topics_are_completed(served: ServedCluster) -> None:
    served.run("topic", "create", "orders", "offers", "clicks")
    words = {"_STREAMLOGCTL_COMPLETE": "bash_complete", "COMP_WORDS": "streamlogctl topic delete o", "COMP_CWORD": "3"}
    environment = words | {"STREAMLOG_BOOTSTRAP_SERVERS": served.address}
    done = CliRunner().invoke(main, [], env=environment, prog_name="streamlogctl")
    assert done.stdout.split() == ["plain,offers", "plain,orders"]
    unreachable = environment | {"STREAMLOG_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    assert CliRunner().invoke(main, [], env=unreachable, prog_name="streamlogctl").stdout.strip() == ""
