"""Ctrl-C in a loop over the synchronous consumer: each record is returned once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamlog.client import Consumer, Producer
from streamlog.client.consumer import sync_consumer

pytestmark = pytest.mark.timeout(60)
VALUES = [b"%d" % number for number in range(10)]


def filled(cluster: Any, topic: str) -> Consumer:
    cluster.create_topic(topic, partitions=1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_many(topic, VALUES).result(30)
    consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers)
    consumer.assign([(topic, 0)], start=0)
    return consumer


def rest(consumer: Consumer, found: list[bytes | None]) -> list[bytes | None]:
    while len(found) < len(VALUES):
        found += [record.value for record in consumer.poll(timeout_s=30)]
    return found + [record.value for record in consumer.poll()]


def test_as_what_was_taken_has_been_given_back(streamlog_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(streamlog_cluster, "given-back") as consumer:
        found = [next(iter(consumer)).value]
        run = consumer._thread.run

        def interrupted(work: Callable[..., object], *args: Any, **kwargs: Any) -> None:
            run(work, *args, **kwargs)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(consumer._thread, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.pause([])
        assert rest(consumer, found) == VALUES


def test_as_a_loop_stores_what_it_has_polled(streamlog_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(streamlog_cluster, "stored") as consumer:

        class Interrupted(sync_consumer._Taken):
            def __init__(self, records: list[Any]) -> None:
                if records:
                    raise KeyboardInterrupt
                super().__init__(records)

        with monkeypatch.context() as patched:
            patched.setattr(sync_consumer, "_Taken", Interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(iter(consumer))
        assert rest(consumer, []) == VALUES
