"""Threads: several share one producer, a consumer has one of its own, and all end in order, by Ctrl-C too.

python examples/threads.py --bootstrap-server 127.0.0.1:9092

A producer may be used by any number of threads. A consumer belongs to one: the others stop it by an event, which it
looks at between two polls.
"""

from __future__ import annotations

import argparse
import threading
from concurrent.futures import ThreadPoolExecutor

from streamlog.client import EARLIEST, Admin, Consumer, Producer
from streamlog.errors import TopicAlreadyExistsError

WRITERS = 4
RECORDS_EACH = 250


def write(producer: Producer, topic: str, writer: int) -> int:
    # send() waits while the buffer is full; result() would wait for the acknowledgement of each record.
    sent = [producer.send(topic, {"writer": writer, "number": number}, key=writer) for number in range(RECORDS_EACH)]
    return max(one.result(timeout_s=60).offset for one in sent)


def read(bootstrap_server: str, topic: str, stop: threading.Event, counts: dict[int, int]) -> None:
    with Consumer(bootstrap_servers=bootstrap_server, key_deserializer=int, value_deserializer="json") as consumer:
        consumer.assign_topics([topic], start=EARLIEST)
        while not stop.is_set():
            for record in consumer.poll(timeout_s=0.5):
                counts[record.key] = counts.get(record.key, 0) + 1
            if sum(counts.values()) >= WRITERS * RECORDS_EACH:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description="Write and read from several threads.")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="host:port of any node")
    parser.add_argument("--topic", default="threads")
    arguments = parser.parse_args()
    with Admin(bootstrap_servers=arguments.bootstrap_server) as admin:
        try:
            admin.create_topic(arguments.topic, partitions=3)
        except TopicAlreadyExistsError:
            pass
    stop, counts = threading.Event(), dict[int, int]()
    reader = threading.Thread(target=read, args=(arguments.bootstrap_server, arguments.topic, stop, counts))
    reader.start()
    try:
        with (
            Producer(
                bootstrap_servers=arguments.bootstrap_server, key_serializer=int, value_serializer="json"
            ) as producer,
            ThreadPoolExecutor(WRITERS) as writers,
        ):
            for writer, last in enumerate(
                writers.map(lambda writer: write(producer, arguments.topic, writer), range(WRITERS))
            ):
                print(f"writer {writer}: the last offset is {last}")
        reader.join()
    finally:
        stop.set()
        reader.join()
    for writer, count in sorted(counts.items()):
        print(f"read {count} records of writer {writer}")


if __name__ == "__main__":
    main()
