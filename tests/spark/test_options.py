"""Options: what is refused, with which name; what is understood."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from streamlog.spark.failures import OptionError, StreamlogSparkError
from streamlog.spark.options import TABLE, Options, Use

SERVERS = {"streamlog.bootstrap.servers": "127.0.0.1:9092"}
READ = SERVERS | {"subscribe": "orders"}


def refused(given: dict[str, str], use: Use | None = None) -> OptionError:
    with pytest.raises(OptionError) as caught:
        _made(given, use)
    return caught.value


def _made(given: dict[str, str], use: Use | None) -> None:
    parsed = Options.parse(given)
    assert use is not None, "it was not refused"
    parsed.check_use(use, "it")


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"subscribe": "orders"}, "streamlog.bootstrap.servers"),
        (SERVERS | {"streamlog.bootstrap.servers": "no port"}, "streamlog.bootstrap.servers"),
        (READ | {"kafka.bootstrap.servers": "127.0.0.1:1"}, "kafka.bootstrap.servers"),
        (READ | {"startingOfsets": "latest"}, "startingofsets"),
        (READ | {"path": "/tmp"}, "path"),
        (READ | {"kafka.fetch.max.bytes": "1"}, "kafka.fetch.max.bytes"),
        (READ | {"streamlog.no.such": "1"}, "streamlog.no.such"),
        (READ | {"streamlog.fetch.max.bytes": "many"}, "streamlog.fetch.max.bytes"),
        (READ | {"streamlog.group.id": "g"}, "streamlog.group.id"),
        (READ | {"streamlog.acks": "1"}, "streamlog.acks"),
        (READ | {"assign": '{"orders": [0]}'}, "assign"),
        (SERVERS | {"subscribe": " , "}, "subscribe"),
        (SERVERS | {"subscribePattern": "("}, "subscribePattern"),
        (SERVERS | {"assign": '{"orders": [-1]}'}, "assign"),
        (SERVERS | {"assign": '{"orders": [true]}'}, "assign"),
        (SERVERS | {"assign": "[]"}, "assign"),
        (READ | {"startingOffsets": "first"}, "startingOffsets"),
        (READ | {"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets"),
        (READ | {"startingOffsets": '{"orders": {"x": 3}}'}, "startingOffsets"),
        (READ | {"startingOffsets": '{"orders": '}, "startingOffsets"),
        (READ | {"startingTimestamp": "-1"}, "startingTimestamp"),
        (READ | {"startingOffsetsByTimestamp": '{"orders": {"0": -2}}'}, "startingOffsetsByTimestamp"),
        (READ | {"startingOffsetsByTimestampStrategy": "latest"}, "startingOffsetsByTimestampStrategy"),
        (READ | {"failOnDataLoss": "yes"}, "failOnDataLoss"),
        (READ | {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        (READ | {"maxOffsetsPerTrigger": "1.5"}, "maxOffsetsPerTrigger"),
        (READ | {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger"),
        (READ | {"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "6"}, "maxBytesPerTrigger"),
        (READ | {"maxTriggerDelay": "1m"}, "maxTriggerDelay"),
        (READ | {"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "6"}, "maxTriggerDelay"),
        (READ | {"minPartitions": "none"}, "minPartitions"),
        (SERVERS | {"sinkId": "a/b"}, "sinkId"),
        (SERVERS | {"sinkBatch": "0"}, "sinkBatch"),
        (SERVERS | {"sinkId": "a", "sinkBatch": "-1"}, "sinkBatch"),
    ],
)
def test_what_is_wrong_is_refused_by_name(given: dict[str, str], option: str) -> None:
    error = refused(given)
    assert error.option == option
    assert str(error).startswith(f"option {option}: ")


@pytest.mark.parametrize(
    ("given", "use", "option"),
    [
        (SERVERS, Use.STREAM, "subscribe"),
        (READ | {"endingOffsets": "latest"}, Use.STREAM, "endingOffsets"),
        (READ | {"endingTimestamp": "1"}, Use.STREAM, "endingTimestamp"),
        (READ | {"maxOffsetsPerTrigger": "5"}, Use.BATCH, "maxOffsetsPerTrigger"),
        (READ | {"startingOffsets": "latest"}, Use.BATCH, "startingOffsets"),
        (READ | {"startingOffsets": '{"orders": {"0": -1}}'}, Use.BATCH, "startingOffsets"),
        (READ | {"endingOffsets": "earliest"}, Use.BATCH, "endingOffsets"),
        (READ | {"endingOffsets": '{"orders": {"0": -2}}'}, Use.BATCH, "endingOffsets"),
        (READ | {"topic": "out"}, Use.STREAM, "topic"),
        (SERVERS | {"topic": "out", "subscribe": "orders"}, Use.SINK, "subscribe"),
    ],
)
def test_what_means_nothing_to_the_query_is_refused(given: dict[str, str], use: Use, option: str) -> None:
    assert refused(given, use).option == option


def test_a_misspelt_option_is_guessed() -> None:
    assert "did you mean startingOffsets?" in str(refused(READ | {"startingOfsets": "latest"}))


def test_names_are_understood_in_any_case_and_by_kafkas_name() -> None:
    options = Options.parse(
        {
            "kafka.bootstrap.servers": "127.0.0.1:9092",
            "SUBSCRIBE": "b, a,b",
            "maxtriggerdelay": "2m",
            "minOffsetsPerTrigger": "10",
            "FailOnDataLoss": "FALSE",
            "checkpointLocation": "/tmp/x",
            "streamlog.fetch.max.bytes": "4096",
        }
    )
    options.check_use(Use.STREAM, "a stream")
    assert options.get("subscribe") == ("b", "a")
    assert options.number("maxTriggerDelay") == 120_000
    assert not options.truth("failOnDataLoss")
    assert not options.truth("includeHeaders")
    assert options.client == {"bootstrap.servers": "127.0.0.1:9092", "fetch.max.bytes": "4096"}


def test_an_error_travels_as_its_sentence() -> None:
    error = pickle.loads(pickle.dumps(refused({})))
    assert type(error) is StreamlogSparkError
    assert str(error).startswith("option streamlog.bootstrap.servers: is missing")


def test_the_documentation_has_the_table() -> None:
    words = {Use.STREAM: "stream", Use.BATCH: "batch", Use.SINK: "sink", Use.READ: "stream, batch"}
    text = (Path(__file__).parent.parent.parent / "docs" / "spark.md").read_text()
    for option in TABLE.values():
        assert f"| {option.name} | {words[option.use]} | {option.default} | {option.doc} |\n" in text, option.name
