"""A member of a consumer group. Start several of them: they share the partitions of the topic.

    python examples/group_worker.py --bootstrap-server 127.0.0.1:9092 --topic orders --group billing

Ctrl-C leaves the group, and its partitions go to the other members at once. Offsets are committed after the records
were processed, so each record is processed at least once: after a crash the next owner starts at the last commit.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from streamlog.client import Consumer, ConsumerRecord
from streamlog.model import TopicPartition


def process(record: ConsumerRecord) -> None:
    print(f"{record.topic}-{record.partition}:{record.offset} {record.value!r}", flush=True)


def on_assigned(partitions: Sequence[TopicPartition]) -> None:
    print("assigned:", ", ".join(map(str, partitions)), flush=True)


def on_revoked(partitions: Sequence[TopicPartition]) -> None:
    print("revoked:", ", ".join(map(str, partitions)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A member of a consumer group.")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="host:port of any node")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--max-records", type=int, help="stop after so many; without it: at Ctrl-C")
    arguments = parser.parse_args()

    done = 0
    with Consumer(
        bootstrap_servers=arguments.bootstrap_server,
        group_id=arguments.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe([arguments.topic], on_assigned=on_assigned, on_revoked=on_revoked)
        try:
            while arguments.max_records is None or done < arguments.max_records:
                records = consumer.poll(timeout_s=1)
                for record in records:
                    process(record)
                if records:
                    consumer.commit()
                    done += len(records)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
