"""Create a topic, write ten records, read them back.

python examples/produce_consume.py --bootstrap-server 127.0.0.1:9092
"""

from __future__ import annotations

import argparse

from streamlog.client import EARLIEST, Admin, Consumer, Producer
from streamlog.errors import TopicAlreadyExistsError

COUNT = 10


def main() -> None:
    parser = argparse.ArgumentParser(description="Create a topic, write ten records, read them back.")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="host:port of any node")
    parser.add_argument("--topic", default="orders")
    arguments = parser.parse_args()

    with Admin(bootstrap_servers=arguments.bootstrap_server) as admin:
        try:
            admin.create_topic(arguments.topic, partitions=3)
        except TopicAlreadyExistsError:
            pass

    with Producer(bootstrap_servers=arguments.bootstrap_server) as producer:
        # send() returns at once; result() waits for the acknowledgement of all in-sync replicas.
        sent = [producer.send(arguments.topic, f"order {i}".encode(), key=b"anna") for i in range(COUNT)]
        for one in sent:
            written = one.result(timeout_s=30)
            print(f"written: partition {written.partition}, offset {written.offset}")

    with Consumer(bootstrap_servers=arguments.bootstrap_server) as consumer:
        consumer.assign_topics([arguments.topic], start=EARLIEST)
        read = 0
        while read < COUNT:
            for record in consumer.poll(timeout_s=5):
                print(f"read: {record.partition}:{record.offset} {record.key!r} {record.value!r}")
                read += 1


if __name__ == "__main__":
    main()
