"""A record that cannot be sent is refused by `send`, alone: the records before and after it are written."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.client.producer.given_records import TIMESTAMP_MAX
from streamlog.errors import InvalidRequestError, StreamlogError

from ..stage import Stage, play

BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"value": "text"}, "value", "a value must be bytes or None, not str"),
    ({"value": 7}, "value", "a value must be bytes or None, not int"),
    ({"key": "text"}, "key", "a key must be bytes or None, not str"),
    ({"key": bytearray(b"x")}, "key", "a key must be bytes or None, not bytearray"),
    ({"headers": [("a", "1")]}, "headers", r"the value of header 'a' is '1' \(str\); encode it: value.encode\(\)"),
    ({"headers": {"a": "1"}}, "headers", "the value of header 'a' is '1'"),
    ({"headers": {"a": 1}}, "headers", r"the value of header 'a' is 1 \(int\)"),
    ({"headers": [(b"a", b"1")]}, "headers", "the name of header 0 is b'a'"),
    ({"headers": ["ab", b"1"]}, "headers", "header 0 is 'ab'"),
    ({"headers": [("a", b"1", b"2")]}, "headers", "header 0 is"),
    ({"headers": "a=1"}, "headers", "not str"),
    ({"headers": 7}, "headers", "not int"),
    ({"headers": [("\ud800", b"1")]}, "headers", "header key"),
    ({"timestamp_ms": -1}, "timestamp_ms", r"not -1 \(int\)"),
    ({"timestamp_ms": 1.5}, "timestamp_ms", r"not 1.5 \(float\)"),
    ({"timestamp_ms": "now"}, "timestamp_ms", "not 'now'"),
    ({"timestamp_ms": True}, "timestamp_ms", "not True"),
    ({"timestamp_ms": TIMESTAMP_MAX + 1}, "timestamp_ms", "must be an integer from 0"),
    ({"partition": "0"}, "partition", r"partition must be an integer or None, not '0' \(str\)"),
    ({"partition": 0.0}, "partition", "not 0.0"),
    ({"partition": True}, "partition", "not True"),
    ({"topic": None}, "topic", "a topic must be a name, not None"),
    ({"topic": ["t"]}, "topic", "a topic must be a name"),
    ({"topic": ""}, "topic", "a topic must be a name"),
    ({"topic": "\ud800"}, "topic", "the name has control or unprintable characters"),
]


@pytest.mark.parametrize("known", [False, True], ids=["topic-unknown-yet", "topic-known"])
@pytest.mark.parametrize(("bad", "field", "message"), BAD, ids=lambda case: repr(case)[:40])
def test_a_bad_record_is_refused_alone(bad: dict[str, Any], field: str, message: str, *, known: bool) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(linger_ms=20) as producer:
            if known:
                await producer.partition_count("t")
            before = producer.send("t", b"before")
            with pytest.raises(StreamlogError, match=message) as refused:
                producer.send(**{"topic": "t", "value": b"bad", **bad})
            assert refused.value.details.get("field") == field
            after = producer.send("t", b"after", headers=[("h", b"1")])
            assert [(await before).offset, (await after).offset] == [0, 1]
        assert log.values() == [b"before", b"after"]

    play(story)


@pytest.mark.parametrize("known", [False, True], ids=["topic-unknown-yet", "topic-known"])
def test_headers_are_pairs_or_a_dict(*, known: bool) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer() as producer:
            if known:
                await producer.partition_count("t")
            producer.send("t", b"1", headers=[("a", b"1"), ("b", None)])
            producer.send("t", b"2", headers={"a": b"1", "b": None})
            producer.send("t", b"3", headers=(pair for pair in [("a", b"1"), ("b", None)]))
            producer.send("t", b"4", headers={})
        found = [record.headers for record in log.records()]
        assert found == [(("a", b"1"), ("b", None))] * 3 + [()]

    play(story)


class _Picky:
    """A partitioner of a user's, with defects."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> Any:
        if value == b"raises":
            raise KeyError("no such customer")
        return "0" if value == b"no number" else 0


@pytest.mark.parametrize("known", [False, True], ids=["topic-unknown-yet", "topic-known"])
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (b"raises", KeyError, "no such customer"),
        (b"no number", InvalidRequestError, "_Picky chose partition '0' of 1"),
    ],
)
def test_a_partitioner_that_raises_fails_its_record_alone(
    value: bytes, error: type[Exception], message: str, *, known: bool
) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(partitioner=_Picky()) as producer:
            if known:
                await producer.partition_count("t")
            before = producer.send("t", b"before")
            with pytest.raises(error, match=message):
                await producer.send("t", value)
            after = producer.send("t", b"after")
            assert [(await before).offset, (await after).offset] == [0, 1]
            await producer.flush()  # the future has raised the error: it is not raised again
        assert log.values() == [b"before", b"after"]

    play(story)


def test_a_flush_raises_what_a_partitioner_raised_and_no_future_did() -> None:
    async def story(stage: Stage) -> None:
        stage.cluster.create("t")
        async with stage.producer(partitioner=_Picky()) as producer:
            producer.send("t", b"raises")
            with pytest.raises(KeyError, match="no such customer"):
                await producer.flush()
            assert (await producer.send("t", b"after")).offset == 0

    play(story)


@pytest.mark.parametrize("batch_size", [200, 1_000, 16_384])
def test_batch_size_is_a_bound(batch_size: int) -> None:
    """Also where batches have to wait for others in flight, and are merged."""

    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer(batch_size=batch_size, max_in_flight_requests_per_connection=1) as producer:
            for number in range(300):
                producer.send("t", b"%03d" % number * 20)
                if number % 7 == 0:
                    await producer.flush()
            [future] = [producer.send("t", b"x" * 2 * batch_size)]  # a record that is larger has a batch of its own
            await future
        assert len(log.values()) == 301
        sizes = [len(batch.data) for batch in log.batches]
        assert max(sizes[:-1]) <= batch_size

    play(story)


@pytest.mark.parametrize(
    ("values", "keys", "message"),
    [
        (None, None, "values must be a list or tuple of bytes, not NoneType"),
        (7, None, "values must be a list or tuple of bytes, not int"),
        (b"ab", None, "values must be a list or tuple of bytes, not bytes"),
        ("ab", None, "values must be a list or tuple of bytes, not str"),
        ({b"a"}, None, "values must be a list or tuple of bytes, not set"),
        ([b"a"], 7, "keys must be a list or tuple of bytes, not int"),
        ([b"a"], [b"k", b"l"], "2 keys for 1 values"),
        ([b"a", "b"], None, "all values must be bytes or None"),
    ],
)
def test_what_send_many_refuses(values: Any, keys: Any, message: str) -> None:
    async def story(stage: Stage) -> None:
        [log] = stage.cluster.create("t")
        async with stage.producer() as producer:
            before = producer.send("t", b"before")
            with pytest.raises(InvalidRequestError, match=message):
                await producer.send_many("t", values, keys=keys)
            assert (await before).offset == 0
        assert log.values() == [b"before"]

    play(story)
