"""Numbers beyond what a message holds are refused in a sentence."""

from __future__ import annotations

import pytest

from tests.cli.served import USAGE, ServedCluster

BIG = "99999999999"
LARGEST = "9" * 5_000


@pytest.mark.parametrize(
    "arguments",
    [
        f"partition reassign t-0 --replicas 1,{BIG}",
        f"partition reassign t-0 --replicas 1,{LARGEST}",
        f"partition elect --topic t --partition {BIG}",
        f"partition move-log-dir t-0 --broker {BIG} --log-dir /data",
        f"cluster drain {BIG}",
        f"cluster unregister {BIG}",
        f"cluster add-voter 3 --replace {BIG}",
        f"cluster log-dirs --broker {BIG}",
        f"cluster upgrade --level {BIG}",
        f"topic create u --replica-assignment 1:{BIG}",
        f"transaction abort --partition t-0 --producer-id {BIG}{BIG}",
        f"transaction find-hanging --open-for-ms {BIG}{BIG}",
        f"transaction list --producer-id {BIG}{BIG}",
    ],
)
def test_in_an_option(served: ServedCluster, arguments: str) -> None:
    done = served.run(*arguments.split())
    assert done.exit_code == USAGE
    assert "not in the range" in done.stderr or "each in 0..2147483647" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        f"topic create u --partitions {BIG}",
        f"topic create u --replication-factor {BIG}",
        f"topic alter t --partitions {BIG}",
    ],
)
def test_in_a_request(served: ServedCluster, arguments: str) -> None:
    served.run("topic", "create", "t")
    done = served.run(*arguments.split())
    assert done.exit_code == 1
    assert f"{BIG} must be at most 2147483647" in done.stderr
