"""A client in a process that was forked from one with a client raises an error, and does not wait forever."""

from __future__ import annotations

import subprocess
import sys

# What is printed is a line each, of the parent and of its children in turn.
PROGRAM = """
import os, sys
from streamlog.client import Admin, Producer
from streamlog.ports.forks import is_forked
from streamlog.errors import ClientClosedError

def in_child(work):
    sys.stdout.flush()
    if not (child := os.fork()):
        try:
            print(work())
        except ClientClosedError as error:
            print(error.code, str(error).partition(' one ')[0])
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)

def new():
    Admin(bootstrap_servers="127.0.0.1:1")

def first():
    Admin(bootstrap_servers="127.0.0.1:1").close()
    return "made and closed"

in_child(first)
admin = Admin(bootstrap_servers="127.0.0.1:1")
in_child(new)
in_child(admin.describe_cluster)
in_child(admin.close)
producer = Producer(bootstrap_servers="127.0.0.1:1")
in_child(lambda: producer.send("t", b"x"))
in_child(lambda: in_child(new))
admin.close()
producer.close(timeout_s=0)
in_child(new)
print(is_forked())
"""


def test_clients_do_not_survive_a_fork_and_say_so() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    refused = "CLIENT_CLOSED this process was forked from"
    assert ended.stdout.splitlines() == [
        "made and closed",  # none had been made before
        refused,
        refused,
        "None",  # closing what came along does nothing
        refused,
        refused,
        "None",  # of the child, whose own child was refused
        refused,
        "False",
    ]
