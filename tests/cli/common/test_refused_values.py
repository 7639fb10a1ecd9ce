"""Values of options and files that are refused before a node is called, with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from streamlog.cli.main import main
from tests.cli.served import USAGE


def ended(status: int, *arguments: str) -> str:
    done = CliRunner().invoke(main, [*arguments, "--bootstrap-server", "127.0.0.1:1"])
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code == status, done.stderr
    return done.stderr


def refused(*arguments: str) -> str:
    return ended(USAGE, *arguments)


def test_an_address_with_a_scheme() -> None:
    done = CliRunner().invoke(main, ["topic", "list", "--bootstrap-server", "http://localhost:9092"])
    assert done.exit_code == USAGE
    assert "'http://localhost:9092': must be host:port, without a scheme before it." in done.stderr


def test_produce_explains_how_long_a_record_waits() -> None:
    assert "delivery.timeout.ms" in CliRunner().invoke(main, ["produce", "--help"]).stdout


def test_an_offset_with_zeros_before_it() -> None:
    assert "no node answers" in ended(1, "records", "delete", "t-0", "--before", f"{1234:030}")


@pytest.mark.parametrize(
    "command", ["records delete --offset-json-file", "partition reassign --reassignment-json-file"]
)
def test_whole_numbers_of_a_plan_in_quotes(tmp_path: Path, command: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"partitions": [{"topic": "t", "partition": "0", "offset": "-1", "replicas": ["1", "2"]}]}')
    assert "no node answers" in ended(1, *command.split(), str(file))


@pytest.mark.parametrize("time", ["1960-01-01T00:00:00Z", "9" * 25, "9" * 5_000, "yesterday"])
@pytest.mark.parametrize(
    "option",
    [
        "consume t --timestamp",
        "offsets t --time",
        "topic trim t --before-time",
        "group reset-offsets g --topic t --to-datetime",
    ],
)
def test_a_time_before_1970_or_beyond_int64(option: str, time: str) -> None:
    assert "must be milliseconds since 1970, or a time from 1970 on" in refused(*option.split(), time)


@pytest.mark.parametrize(
    "command",
    [
        "topic create caf\udce9",
        "group describe caf\udce9",
        "transaction describe caf\udce9",
        "acl add --allow-principal User:x --topic caf\udce9",
    ],
)
def test_an_argument_that_is_not_utf8(command: str) -> None:
    said = "Error: A name or value has '\\udce9' as its character 4, which is not UTF-8: give it in UTF-8.\n"
    assert refused(*command.split()) == said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("orders,0,5\n".encode("utf-16"), "must have lines of topic,partition,offset, in UTF-8"),
        (b"x" * 200_000 + b",0,5\n", "cannot be read (field larger than field limit (131072))"),
    ],
    ids=["UTF-16", "a long field"],
)
def test_a_plan_that_is_no_text_of_utf8_or_no_csv(tmp_path: Path, data: bytes, said: str) -> None:
    file = tmp_path / "plan.csv"
    file.write_bytes(data)
    assert said in " ".join(refused("group", "reset-offsets", "g", "--from-file", str(file)).split())


@pytest.mark.parametrize("number", ["9" * 20, "-2", "1.9", "Infinity", "true", '"1.0"', "9" * 5_000])
@pytest.mark.parametrize(
    "form", ['{"topic": "t", "partition": %s, "offset": 1}', '{"topic": "t", "partition": 0, "offset": %s}']
)
def test_offsets_of_a_file_that_are_no_numbers_of_their_range(tmp_path: Path, form: str, number: str) -> None:
    file = tmp_path / "offsets.json"
    file.write_text('{"partitions": [%s]}' % (form % number))
    assert "is not a list of offsets" in refused("records", "delete", "--offset-json-file", str(file))


@pytest.mark.parametrize(
    "option",
    [
        "consume t --partition 0 --offset",
        "consume t --offset -",
        "offsets t --partitions",
        "records delete t-0 --before",
        "perf produce t --num-records 5 --record-size",
        "perf e2e t --record-size",
    ],
)
@pytest.mark.parametrize("number", ["9" * 14 + "99999999", "9" * 5_000])
def test_a_number_beyond_all_bounds(option: str, number: str) -> None:
    assert "Invalid value" in refused(*f"{option} {number}".replace("- ", "-").split())


def test_a_number_beyond_all_bounds_in_a_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    for line in ("t,99999999999,5", "t,0,99999999999999999999", f"t,0,{'9' * 5_000}"):
        file.write_text(line)
        assert "line 1: must be topic,partition,offset." in refused(
            "group", "reset-offsets", "g", "--from-file", str(file)
        )
