"""REQUIREMENTS, Producing and Consuming, through streamlogctl as a process, on a real cluster."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from streamlog.api.pb import batches_pb2, common_pb2
from streamlog.cli.records.input_format import InputRecord
from streamlog.cli.records.produce import _Writer
from streamlog.client.producer.batches.producer_batch import ManyFuture
from streamlog.errors import RequestTimedOutError
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.cli.commands import COMMAND, environment, run
from tests.storage.batches import poison


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog")) as cluster:
        yield cluster


def everything(cluster: InProcessCluster, topic: str, *options: str) -> list[bytes]:
    done = run(cluster, "consume", topic, "--from-beginning", "--until-end", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_each_line_is_a_record_in_its_order(cluster: InProcessCluster) -> None:
    cluster.create_topic("lines")
    lines = [f"line {number}" for number in range(5_000)]
    done = run(cluster, "produce", "lines", "--verbose", stdin="\n".join(lines))
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"Wrote 5000 records: 5000 to lines-0.\n"
    assert everything(cluster, "lines") == [line.encode() for line in lines]


def test_keys_headers_and_what_is_printed(cluster: InProcessCluster) -> None:
    cluster.create_topic("keys")
    text = "a:1;k=v;w\nb:2;l=NULL\n"
    properties = ("parse.headers=true", "headers.delimiter=;", "parse.key=true", "key.separator==", "null.marker=NULL")
    options = [part for each in properties for part in ("--property", each)]
    done = run(cluster, "produce", "--topic", "keys", *options, stdin=text)
    assert done.returncode == 0, done.stderr
    printed = [part for name in ("key", "offset", "headers") for part in ("--property", f"print.{name}=true")]
    assert everything(cluster, "keys", *printed) == [b"Offset:0\ta:1\tk\tv;w", b"Offset:1\tb:2\tl\tnull"]
    [first, _] = [json.loads(line) for line in everything(cluster, "keys", "--output", "json")]
    assert (first["offset"], first["key"]["text"], first["value"]["text"]) == (0, "k", "v;w")


@pytest.mark.parametrize("more", [(), ("--sync",)])
def test_records_with_headers_are_counted(cluster: InProcessCluster, more: tuple[str, ...]) -> None:
    topic = f"headers{len(more)}"
    cluster.create_topic(topic)
    produce = ("produce", topic, "--verbose", "--property", "parse.headers=true", *more)
    assert run(cluster, *produce, stdin="h:1\ta\nh:2\tb\n").stderr == f"Wrote 2 records: 2 to {topic}-0.\n".encode()
    assert run(cluster, *produce, stdin="h:1\ta\n").stderr == f"Wrote 1 record: 1 to {topic}-0.\n".encode()
    done = run(cluster, *produce, stdin="h:1\ta\nh:2\tb\nbad\n")
    assert done.returncode == 1
    assert b"The 2 lines before it are written" in done.stderr


@pytest.mark.parametrize(("closed", "status"), [("<&-", 0), (">&-", 1), ("2>&-", 0), ("<&- >&- 2>&-", 1)])
def test_a_standard_stream_that_is_closed(cluster: InProcessCluster, closed: str, status: int) -> None:
    """Without standard output, what is printed is an error."""
    cluster.create_topic(f"closed-{closed.encode().hex()}")
    command = ["bash", "-c", f'"$@" {closed}', "bash", *COMMAND, "topic", "list"]
    done = subprocess.run(command, env=environment(cluster), capture_output=True, check=False, timeout=60)
    assert done.returncode == status
    if closed == ">&-":
        assert done.stderr == b"Error: standard output cannot be written: Bad file descriptor\n"


@pytest.mark.parametrize("command", ["-h", "consume full --from-beginning --until-end", "topic list -o json"])
def test_output_that_cannot_be_written(cluster: InProcessCluster, command: str) -> None:
    if command.startswith("consume"):
        cluster.create_topic("full")
        run(cluster, "produce", "full", stdin="x\n" * 10_000)
    full = ["bash", "-c", '"$@" > /dev/full', "bash", *COMMAND, *command.split()]
    done = subprocess.run(full, env=environment(cluster), capture_output=True, check=False, timeout=60)
    said = b"Error: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr[-len(said) :]) == (1, said)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(cluster: InProcessCluster, codec: str) -> None:
    cluster.create_topic(codec)
    assert run(cluster, "produce", codec, "--compression", codec, stdin="x\n" * 1_000).returncode == 0
    assert everything(cluster, codec) == [b"x"] * 1_000


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(cluster: InProcessCluster, acks: str) -> None:
    cluster.create_topic(f"acks-{acks}")
    done = run(cluster, "produce", f"acks-{acks}", "--acks", acks, "--sync", stdin="a\nb\n")
    assert done.returncode == 0, done.stderr
    assert run(cluster, "consume", f"acks-{acks}", "--from-beginning", "--max-messages", "2").stdout == b"a\nb\n"


def test_integer_keys_land_on_the_partitions_of_their_number(cluster: InProcessCluster) -> None:
    cluster.create_topic("modulo", partitions=3)
    text = "".join(f"{number}\trow {number}\n" for number in range(9))
    done = run(
        cluster, "produce", "modulo", "--partitioner", "integer-modulo", "--property", "parse.key=true", stdin=text
    )
    assert done.returncode == 0, done.stderr
    assert everything(cluster, "modulo", "--partition", "1") == [b"row 1", b"row 4", b"row 7"]


def test_places_to_start_from(cluster: InProcessCluster) -> None:
    cluster.create_topic("places")
    run(cluster, "produce", "places", stdin="a\nb\nc\n")
    by_offset = run(cluster, "consume", "places", "--partition", "0", "--offset", "1", "--until-end")
    assert by_offset.stdout == b"b\nc\n"
    assert by_offset.stderr == b"Processed a total of 2 messages\n"
    assert run(cluster, "consume", "places", "--timestamp", "0", "--until-end").stdout == b"a\nb\nc\n"
    later = run(cluster, "consume", "places", "--timestamp", "2099-01-01T00:00:00Z", "--until-end")
    assert later.stdout == b""
    now = run(cluster, "consume", "places", "--timeout-ms", "100")
    assert (now.returncode, now.stdout) == (0, b"")
    beyond = run(cluster, "consume", "places", "--partition", "0", "--offset", "99")
    assert beyond.returncode == 1
    assert b"offset 99 is not in 0..3: start at an offset in the log" in beyond.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "t", "--offset", "5"),
        ("consume", "t", "--offset", "x", "--partition", "0"),
        ("consume", "t", "--from-beginning", "--timestamp", "0"),
        ("consume", "t", "--timestamp", "yesterday"),
        ("consume",),
        ("produce",),
        ("produce", "t", "--property", "parse.key"),
    ],
)
def test_wrong_usage(cluster: InProcessCluster, arguments: tuple[str, ...]) -> None:
    done = run(cluster, *arguments)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_topics_that_a_regular_expression_matches(cluster: InProcessCluster) -> None:
    for topic in ("region-eu", "region-us", "other-region-eu"):
        cluster.create_topic(topic)
        assert run(cluster, "produce", topic, stdin=f"of {topic}\n").returncode == 0
    shown = everything(cluster, "region-.*", "--format", "%t %s\n")
    assert sorted(shown) == [b"region-eu of region-eu", b"region-us of region-us"]
    named = [json.loads(line)["topic"] for line in everything(cluster, "region-.*", "--output", "json")]
    assert sorted(named) == ["region-eu", "region-us"]
    assert sorted(everything(cluster, "region-.*", "--group", "all")) == [b"of region-eu", b"of region-us"]
    # As a member it subscribes to the expression, and goes on from its commits.
    assert run(cluster, "produce", "region-us", stdin="more\n").returncode == 0
    assert run(cluster, "consume", "region-.*", "--group", "all", "--max-messages", "1").stdout == b"more\n"
    refused = run(cluster, "consume", "region-.*", "--partition", "0")
    assert (refused.returncode, b"--partition is of one topic" in refused.stderr) == (2, True)
    unmatched = run(cluster, "consume", "nothing-.*")
    assert (unmatched.returncode, b"no topic matches 'nothing-.*'" in unmatched.stderr) == (1, True)


def test_a_topic_that_is_not_there(cluster: InProcessCluster) -> None:
    for done in (run(cluster, "produce", "missing", stdin="a\n"), run(cluster, "consume", "missing")):
        assert done.returncode == 1
        assert done.stderr.startswith(b"Error: topic 'missing' does not exist; create it with: streamlogctl topic")
        assert b"or list the topics with: streamlogctl topic list" in done.stderr
        assert done.stderr.count(b"\n") == 1


def test_a_line_that_is_no_record_is_named(cluster: InProcessCluster) -> None:
    cluster.create_topic("bad-lines")
    done = run(cluster, "produce", "bad-lines", "--property", "parse.key=true", stdin="k\tv\nnothing\n")
    assert done.returncode == 1
    assert b"line 2 has no key" in done.stderr
    assert b"The line before it is written, this line and those after it are not." in done.stderr
    assert run(cluster, "consume", "bad-lines", "--from-beginning", "--until-end").stdout == b"v\n"
    long = run(cluster, "produce", "bad-lines", stdin=b"x" * ((1 << 20) + 1))
    assert long.returncode == 1
    assert b"max.request.size" in long.stderr


def test_a_batch_that_cannot_be_decoded(cluster: InProcessCluster) -> None:
    made = run(
        cluster, "topic", "create", "bad-batch", "--partitions", "1", "--config", "record.validation.enable=false"
    )
    assert made.returncode == 0, made.stderr
    run(cluster, "produce", "bad-batch", stdin="before\n")
    part = batches_pb2.PartitionBatches(topic="bad-batch", partition=0, batches=poison(codec=1))
    request = batches_pb2.ProduceRequest(acks=common_pb2.ACKS_ALL, partitions=[part])
    codes = set()
    for address in cluster.bootstrap_servers.split(","):  # one of them leads
        with grpc.insecure_channel(address) as channel:
            produce: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/streamlog.v1.Batches/Produce")
            answer = produce(request.SerializeToString(), timeout=10)
        codes.add(batches_pb2.ProduceResponse.FromString(answer).results[0].error.code)
    assert codes == {"", "NOT_LEADER"}
    run(cluster, "produce", "bad-batch", stdin="after\n")
    done = run(cluster, "consume", "bad-batch", "--from-beginning", "--until-end")
    assert done.returncode == 1
    assert done.stdout == b"before\n"
    assert b"bad-batch-0: the batch at offset 1 cannot be decoded: gzip: " in done.stderr
    assert b"seek to offset 2" in done.stderr
    assert b"--on-corrupt-batch skip" in done.stderr
    assert b"Traceback" not in done.stderr
    done = run(cluster, "consume", "bad-batch", "--partition", "0", "--offset", "2", "--until-end")
    assert done.stdout == b"after\n"
    done = run(cluster, "consume", "bad-batch", "--from-beginning", "--until-end", "--on-corrupt-batch", "skip")
    assert (done.returncode, done.stdout) == (0, b"before\nafter\n")
    assert done.stderr.count(b"bad-batch-0: the batch at offset 1 cannot be decoded and is skipped") == 1
    assert b"Processed a total of 2 messages; corrupt batches skipped: 1" in done.stderr


@pytest.mark.parametrize("end", ["Ctrl-C", "closed pipe"])
def test_a_consumer_that_waits_ends_without_a_traceback(cluster: InProcessCluster, end: str) -> None:
    topic = end.replace(" ", "-")
    cluster.create_topic(topic)
    run(cluster, "produce", topic, stdin="a\n")
    command = [*COMMAND, "consume", topic, "--from-beginning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(cluster)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        assert first == b"a\n", process.stderr.read()
        if end == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        else:
            process.stdout.close()
        said = process.stderr.read()
        assert process.wait(60) == (130 if end == "Ctrl-C" else 0)
    assert said.strip() == b"Processed a total of 1 messages"


def test_produce_reports_after_ctrl_c_what_is_written(cluster: InProcessCluster) -> None:
    cluster.create_topic("interrupted", partitions=1)
    command = [*COMMAND, "produce", "interrupted", "--verbose", "--sync"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(cluster)) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"a\nb\nc\n")
        process.stdin.flush()
        run(cluster, "consume", "interrupted", "--from-beginning", "--max-messages", "3")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        # The third can be read before its acknowledgement has arrived.
        assert process.stderr.read().strip() in (
            b"Wrote 3 records: 3 to interrupted-0.",
            b"Wrote 2 records: 2 to interrupted-0; 1 more were not acknowledged.",
        )


async def test_records_without_an_acknowledgement_are_in_the_report() -> None:
    async def send_many(*_: object, **__: object) -> object:
        return SimpleNamespace(done=lambda: False)

    writer = _Writer(cast(Any, SimpleNamespace(send_many=send_many)), "orders", None, sync=False)
    await writer._send([InputRecord(None, b"x")] * 3)
    writer.take_done()
    assert writer.unacknowledged == 3
    assert writer.summary() == "Wrote 0 records; 3 more were not acknowledged."


async def test_of_several_batches_those_that_are_acknowledged_are_counted() -> None:
    def part(*, done: bool, error: Exception | None) -> tuple[Any, int, int]:
        of = SimpleNamespace(partition=2)
        batch = SimpleNamespace(done=done, error=error, partition=of, ranges=lambda start, stop: [(7, stop - start)])
        return batch, 0, 2

    parts = [
        part(done=True, error=RequestTimedOutError("late")),
        part(done=True, error=None),
        part(done=False, error=None),
    ]

    async def send_many(*_: object, **__: object) -> object:
        return ManyFuture(parts)

    writer = _Writer(cast(Any, SimpleNamespace(send_many=send_many)), "orders", None, sync=False)
    await writer._send([InputRecord(None, b"x")] * 6)
    writer.take_done()
    assert writer.summary() == "Wrote 2 records: 2 to orders-2; 4 more were not acknowledged."


@pytest.mark.parametrize("end", ["Ctrl-C", "closed pipe"])
def test_a_member_whose_output_is_held_up_ends_too(cluster: InProcessCluster, end: str) -> None:
    topic = f"held-up-{end.replace(' ', '-')}"
    cluster.create_topic(topic)
    run(cluster, "produce", topic, stdin="a" * 99 + "\n" + ("b" * 99 + "\n") * 10_000)
    command = [*COMMAND, "consume", topic, "--from-beginning", "--group", topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(cluster)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(100) == b"a" * 99 + b"\n"
        if end == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        else:
            process.stdout.close()
        assert process.wait(60) == (130 if end == "Ctrl-C" else 0)
        said = process.stderr.read().strip()
        assert said.startswith(b"Processed a total of "), said
        printed = int(said.split()[4])
        assert printed < 10_001
    rest = run(cluster, "consume", topic, "--group", topic, "--until-end")
    assert len(rest.stdout.splitlines()) == 10_001 - printed


def test_an_offset_outside_of_the_log_is_said(cluster: InProcessCluster) -> None:
    cluster.create_topic("outside", partitions=1)
    run(cluster, "produce", "outside", stdin="a\nb\nc\n")
    read = ("consume", "outside", "--partition", "0", "--until-end", "--offset")
    beyond = run(cluster, *read, "99")
    assert (beyond.returncode, beyond.stdout) == (0, b"")
    assert b"outside-0 ends at offset 3: it has nothing at offset 99." in beyond.stderr
    assert b"nothing at" not in run(cluster, *read, "3").stderr
    run(cluster, "topic", "trim", "outside", "--keep-last", "1")
    before = run(cluster, *read, "0")
    assert before.returncode == 1
    assert b"offset 0 is not in 2..3" in before.stderr


def test_the_last_records_and_a_format(cluster: InProcessCluster) -> None:
    cluster.create_topic("tails")
    run(cluster, "produce", "tails", stdin="".join(f"{number}\n" for number in range(20)))
    last = run(cluster, "consume", "tails", "--offset", "-3", "--until-end", "--format", r"%t-%p@%o=%s;\n")
    assert last.stdout == b"tails-0@17=17;\ntails-0@18=18;\ntails-0@19=19;\n"
    with_epoch = ("--property", "print.epoch=true", "--property", "print.offset=true")
    assert everything(cluster, "tails", *with_epoch)[0].startswith(b"Offset:0\tEpoch:")
    assert run(cluster, "consume", "tails", "--format", "%s", "--output", "json").returncode == 2


def test_offsets_of_partitions(cluster: InProcessCluster) -> None:
    cluster.create_topic("ends-a", partitions=2)
    cluster.create_topic("ends-b")
    run(cluster, "produce", "ends-a", "--partition", "1", stdin="x\n" * 5)

    def offsets(*arguments: str) -> list[str]:
        done = run(cluster, "offsets", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().splitlines()[1:]

    assert offsets("--topic", "ends-[ab]") == ["ends-a\t0\t0", "ends-a\t1\t5", "ends-b\t0\t0"]
    assert offsets("ends-a", "--partitions", "1", "--time", "earliest") == ["ends-a\t1\t0"]
    assert offsets("--topic-partitions", "ends-a-1", "--last", "2") == ["ends-a\t1\t3"]
    assert offsets("--topic-partitions", "ends-a-1", "--time", "4102444800000") == ["ends-a\t1\t-1"]
    assert b"no topic matches 'nothing.*'" in run(cluster, "offsets", "--topic", "nothing.*").stderr
    assert b"topic ends-a has no partition 7" in run(cluster, "offsets", "ends-a", "--partitions", "7").stderr
    assert b"is not a regular expression" in run(cluster, "offsets", "--topic", "(").stderr
    missing = run(cluster, "offsets", "missing")
    assert missing.returncode == 1
    assert b"'missing'" in missing.stderr
