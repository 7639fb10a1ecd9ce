"""Groups through streamlogctl, as a process, on a real cluster: REQUIREMENTS, Consuming."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamlog.cli.main import main
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.cli.commands import COMMAND, environment, run

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog")) as cluster:
        yield cluster


def ok(cluster: InProcessCluster, *arguments: str, stdin: str = "") -> str:
    done = run(cluster, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def asked(cluster: InProcessCluster, *arguments: str) -> Result:
    """`streamlogctl group ARGUMENTS`, in this process."""
    return CliRunner().invoke(
        main, ["group", *arguments], env={"STREAMLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    )


def group(cluster: InProcessCluster, *arguments: str) -> str:
    done = asked(cluster, *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def write(cluster: InProcessCluster, topic: str, first: int, end: int) -> None:
    """Lines with integer keys, which land on the partitions of their number."""
    text = "".join(f"{number}\t{number}\n" for number in range(first, end))
    ok(cluster, "produce", topic, "--partitioner", "integer-modulo", "--property", "parse.key=true", stdin=text)


def offsets(cluster: InProcessCluster, name: str) -> list[tuple[int, int | None, int, int | None, bool]]:
    """(partition, current, end, lag, whether a member owns it)."""
    rows = json.loads(asked(cluster, "describe", name, "--output", "json").stdout)
    return [
        (row["partition"], row["current_offset"], row["log_end_offset"], row["lag"], row["consumer_id"] is not None)
        for row in rows
    ]


class Member:
    """`streamlogctl consume --group`, whose lines are read from a file."""

    def __init__(self, cluster: InProcessCluster, path: Path, topic: str, *options: str) -> None:
        self.path = path
        arguments = ["consume", topic, "--group", "demo", "--from-beginning", *options]
        settings = ["--consumer-property", "auto.commit.interval.ms=100"]
        with path.open("wb") as file:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments, *settings], stdout=file, stderr=subprocess.DEVNULL, env=environment(cluster)
            )

    def lines(self) -> list[int]:
        return [int(line) for line in self.path.read_text().splitlines()]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def until(condition: object, within_s: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def owners(cluster: InProcessCluster, name: str) -> dict[str, int]:
    rows = json.loads(asked(cluster, "describe", name, "--members", "--output", "json").stdout)
    return {row["consumer_id"]: row["partition_count"] for row in rows}


def test_a_member_is_killed_and_another_goes_on_from_its_commit(cluster: InProcessCluster, tmp_path: Path) -> None:
    cluster.create_topic("demo", partitions=2)
    members = [Member(cluster, tmp_path / f"member-{number}", "demo") for number in range(3)]
    try:
        until(lambda: sorted(owners(cluster, "demo").values()) == [0, 1, 1])
        write(cluster, "demo", 0, 100)
        until(lambda: sorted(line for member in members for line in member.lines()) == list(range(100)))
        until(lambda: [row[3] for row in offsets(cluster, "demo")] == [0, 0])
        victim = next(member for member in members if member.lines())
        victim.end()
        write(cluster, "demo", 100, 200)
        until(lambda: {line for member in members for line in member.lines()} == set(range(200)))
        until(lambda: [row[1] for row in offsets(cluster, "demo")] == [100, 100])
        assert sorted(owners(cluster, "demo").values()) == [1, 1]
        # Records committed before the kill are not read again.
        again = [line for member in members if member is not victim for line in member.lines()]
        assert sorted([*victim.lines(), *again]) == list(range(200))
    finally:
        for member in members:
            member.end()


def test_where_a_group_goes_on_and_two_groups_read_everything_each(cluster: InProcessCluster) -> None:
    cluster.create_topic("resume", partitions=1)
    write(cluster, "resume", 0, 10)
    consume = ("consume", "resume", "--from-beginning", "--group")
    assert ok(cluster, *consume, "r1", "--max-messages", "4") == "0\n1\n2\n3\n"
    assert offsets(cluster, "r1") == [(0, 4, 10, 6, False)]
    assert ok(cluster, *consume, "r1", "--until-end") == "".join(f"{number}\n" for number in range(4, 10))
    assert offsets(cluster, "r1") == [(0, 10, 10, 0, False)]
    assert ok(cluster, *consume, "r2", "--until-end").splitlines() == [str(number) for number in range(10)]
    by_hand = ok(cluster, "consume", "resume", "--partition", "0", "--offset", "7", "--until-end")
    assert by_hand == "7\n8\n9\n"
    both = run(cluster, "consume", "resume", "--group", "r1", "--partition", "0")
    assert (both.returncode, both.stdout) == (2, b"")
    assert b"--group and --partition are mutually exclusive" in both.stderr
    keys = ok(cluster, *consume, "r3", "--max-messages", "1", "--property", "print.key=true")
    assert keys == "0\t0\n"


def test_reset_delete_and_what_is_refused(cluster: InProcessCluster, tmp_path: Path) -> None:
    cluster.create_topic("reset", partitions=2)
    write(cluster, "reset", 0, 20)
    ok(cluster, "consume", "reset", "--from-beginning", "--group", "x", "--until-end")

    def reset(*options: str) -> list[list[str]]:
        lines = group(cluster, "reset-offsets", "x", *options).splitlines()
        assert lines[0] == "GROUP\tTOPIC\tPARTITION\tNEW-OFFSET"
        return [line.split("\t") for line in lines[1:]]

    def places() -> list[int | None]:
        return [row[1] for row in offsets(cluster, "x")]

    assert reset("--topic", "reset", "--to-earliest") == [["x", "reset", "0", "0"], ["x", "reset", "1", "0"]]
    assert reset("--topic", "res[e]t:1", "--to-earliest") == [["x", "reset", "1", "0"]], "a regular expression"
    assert reset("--topic", "rese.*", "--to-earliest") == reset("--topic", "reset", "--to-earliest")
    assert places() == [10, 10]
    table = group(cluster, "reset-offsets", "x", "--topic", "reset", "--to-earliest", "--output", "table")
    assert "new-offset" in table, "as its other columns"
    reset("--topic", "reset:1", "--to-offset", "4", "--execute")
    assert places() == [10, 4]
    reset("--all-topics", "--shift-by", "-3", "--execute")
    assert places() == [7, 1]
    plan = tmp_path / "plan.csv"
    plan.write_text(group(cluster, "reset-offsets", "x", "--all-topics", "--to-current", "--export"))
    assert plan.read_text() == "reset,0,7\nreset,1,1\n"
    plan.write_bytes(b"\xef\xbb\xbf" + plan.read_bytes())  # as spreadsheets do
    reset("--topic", "reset", "--to-latest", "--execute")
    assert places() == [10, 10]
    reset("--from-file", str(plan), "--execute")
    assert places() == [7, 1]
    reset("--all-topics", "--by-duration", "PT1H", "--execute")
    assert places() == [0, 0]
    reset("--all-topics", "--to-datetime", "2099-01-01T00:00:00Z", "--execute")
    assert places() == [10, 10]
    beyond = asked(cluster, "reset-offsets", "x", "--all-topics", "--to-offset", "999", "--execute")
    assert beyond.stderr == "Outside of the log, so its nearer end is taken: reset-0, reset-1.\n"
    assert places() == [10, 10]
    plan.write_text("reset,0,7\nreset,1,999\n")
    from_file = asked(cluster, "reset-offsets", "x", "--from-file", str(plan), "--execute")
    assert from_file.stderr == "Outside of the log, so its nearer end is taken: reset-1.\n"
    typo = asked(cluster, "reset-offsets", "xx", "--topic", "reset", "--to-latest")
    assert typo.stderr.startswith("There is no group xx: --execute creates it.\n")
    new = asked(cluster, "reset-offsets", "xx", "--topic", "reset", "--to-latest", "--execute")
    assert new.stderr == "There is no group xx: it is created.\n"
    again = asked(cluster, "reset-offsets", "xx", "--topic", "reset", "--to-latest", "--execute")
    assert again.stderr == ""
    assert group(cluster, "delete-offsets", "x", "--topic", "res[e]t:1") == "Deleted the offset of reset-1.\n"
    assert [row[0] for row in offsets(cluster, "x")] == [0]
    listed = group(cluster, "list").splitlines()
    assert listed[0] == "GROUP\tSTATE\t#MEMBERS\tCOORDINATOR (ID)"
    assert any(line.startswith("x\tempty\t0\t") for line in listed)
    assert group(cluster, "delete", "x") == "Deleted group x.\n"
    gone = asked(cluster, "describe", "x")
    assert gone.exit_code == 1
    assert gone.stdout == ""
    assert "group 'x' does not exist: list the groups with 'streamlogctl group list'" in gone.stderr


def test_what_is_said_of_a_group_that_has_members(cluster: InProcessCluster, tmp_path: Path) -> None:
    cluster.create_topic("busy", partitions=2)
    member = Member(cluster, tmp_path / "busy", "busy", "--group", "busy")
    try:
        until(lambda: list(owners(cluster, "busy").values()) == [2])
        refused = asked(cluster, "reset-offsets", "busy", "--topic", "busy", "--to-earliest")
        assert refused.exit_code == 1
        assert "Error: Group 'busy' has 1 active member; stop it first (list them: " in refused.stderr
        assert refused.stderr.endswith("streamlogctl group describe busy --members).\n")
        refused = asked(cluster, "delete", "busy")
        assert refused.exit_code == 1
        assert refused.stderr.startswith("Error: Group 'busy' has 1 active member; stop it first")
        heading, row = group(cluster, "describe", "busy", "--state").splitlines()
        assert heading == "GROUP\tCOORDINATOR (ID)\tASSIGNMENT-STRATEGY\tSTATE\tEPOCH\t#MEMBERS"
        assert row.split("\t")[2:] == ["uniform", "stable", "1", "1"]
        heading, row, other = group(cluster, "describe", "busy").splitlines()
        assert heading == "GROUP\tTOPIC\tPARTITION\tCURRENT-OFFSET\tLOG-END-OFFSET\tLAG\tCONSUMER-ID\tHOST\tCLIENT-ID"
        assert row.split("\t")[:3] == ["busy", "busy", "0"]
        assert other.split("\t")[8] == "streamlogctl"
        heading, row = group(cluster, "describe", "busy", "--members", "--verbose").splitlines()
        assert row.split("\t")[-2:] == ["2", "busy-0,busy-1"]
    finally:
        member.end()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("describe",), "Give a group"),
        (("reset-offsets", "g", "--to-earliest"), "Give the partitions"),
        (("reset-offsets", "g", "--topic", "t"), "Give the new offsets"),
        (
            ("reset-offsets", "g", "--topic", "t", "--to-offset", "3", "--to-earliest"),
            "--to-earliest and --to-offset are mutually exclusive: give one of them.",
        ),
        (("reset-offsets", "g", "--topic", "t:x", "--to-earliest"), "must be TOPIC, or TOPIC:0,1"),
        (("reset-offsets", "--topic", "t", "--to-earliest"), "Give a group"),
        (("reset-offsets", "g", "--all-topics", "--by-duration", "1h"), "must be in ISO 8601, such as P1DT2H3M4.5S"),
    ],
)
def test_wrong_usage(cluster: InProcessCluster, arguments: tuple[str, ...], said: str) -> None:
    done = asked(cluster, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
