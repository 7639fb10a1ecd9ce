"""A user's program under `mypy --strict`, elsewhere on the disk: it finds the package and its types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from collections.abc import Sequence

from streamlog.client import EARLIEST, Admin, AsyncProducer, Consumer, Last, Producer

headers: list[tuple[str, bytes]] = [("a", b"1")]
nullable: dict[str, bytes | None] = {"a": None}


def program() -> int:
    with Producer(bootstrap_servers="127.0.0.1:9092", linger_ms=5) as producer:
        producer.send("t", b"v", key=b"k", headers=headers)
        producer.send("t", None, headers=[("a", b"1"), ("b", None)])
        producer.send("t", b"v", headers=nullable)
        values: Sequence[bytes] = (b"a", b"b")
        producer.send_many("t", values)
    with Producer(bootstrap_servers="127.0.0.1:9092", key_serializer=str, value_serializer="json") as typed:
        typed.send("t", {"n": 1}, key="k")
    with Consumer(bootstrap_servers="127.0.0.1:9092", key_deserializer=str, value_deserializer=str) as consumer:
        consumer.assign({("t", 0): Last(10), ("t", 1): EARLIEST})
        for record in consumer:
            return record.offset
    with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
        return len(admin.list_topics())


async def asynchronous() -> int:
    async with AsyncProducer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
        return (await (await producer.enqueue("t", b"v"))).offset
"""
WRONG = """
from streamlog.client import Producer

with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
    producer.send("t", b"v", headers=[("a", "1")])
    text: str = producer.send("t", b"v").result().offset
"""


@pytest.mark.timeout(600)
def test_a_program_is_checked(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(tmp_path / "cache"),
        "program.py",
        "wrong.py",
    ]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=580, check=False)
    assert "program.py" not in checked.stdout, checked.stdout
    assert checked.stdout.count("wrong.py:") == 2, checked.stdout + checked.stderr
    assert 'wrong.py:5: error: List item 0 has incompatible type "tuple[str, str]"' in checked.stdout
    assert "wrong.py:6: error: Incompatible types in assignment" in checked.stdout
