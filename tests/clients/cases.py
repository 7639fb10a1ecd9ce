"""What every client must do, as commands to its driver; faults are done to the nodes from here.

A case gets a cluster of three nodes, and drivers of one client. Its topics and groups are its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from streamlog.groups.placement import OFFSETS_TOPIC
from streamlog.groups.placement import partition_of as group_partition
from tests.clients.drivers import TIMEOUT_S, Driver
from tests.e2e.processes import WITHIN_S, Processes

PARTITIONS: Final = 3
POLL_S: Final = 1.0
MISSED: Final = {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "NON_EMPTY_GROUP"}
"""How the offsets of one who is no longer a member may be refused."""

Row = dict[str, Any]


class Case:
    """One cluster, one client, names for one case."""

    def __init__(self, processes: Processes, client: str, name: str) -> None:
        self.processes = processes
        self.client = client
        self.topic = f"{client}-{name}"
        self.group = f"{client}-{name}-group"
        self.transactional_id = f"{client}-{name}-id"

    def driver(self) -> AbstractAsyncContextManager[Driver]:
        return Driver(self.client, self.processes.bootstrap_servers)

    async def create(self, topic: str | None = None) -> str:
        await self.processes.create_topic(topic or self.topic, PARTITIONS)
        return topic or self.topic

    async def read_back(self, driver: Driver, topic: str, wanted: Iterable[str]) -> list[Row]:
        """What readers of committed records see, once they see as many, a moment after the commit: these values."""
        wanted = sorted(wanted)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        while True:
            rows = await self.read(driver, topic)
            if len(rows) >= len(wanted) or loop.time() - begin > WITHIN_S:
                assert values(rows) == wanted
                return rows

    async def read(self, driver: Driver, topic: str, *, committed: bool = True) -> list[Row]:
        """All of its partitions, in order of partition and offset."""
        rows: list[Row] = []
        for partition in range(PARTITIONS):
            rows += (await driver("read", topic=topic, partition=partition, read_committed=committed))["records"]
        return rows

    async def restart(self, *node_ids: int) -> None:
        self.processes.start(*node_ids)
        await self.processes.until_in_sync(self.topic)

    def join(self, driver: Driver, member: str = "m", **more: Any) -> Awaitable[Row]:
        return driver("join", member=member, group=self.group, topics=[self.topic], read_committed=True, **more)


def lines(values: Iterable[str]) -> list[Row]:
    return [{"value": value, "partition": number % PARTITIONS} for number, value in enumerate(values)]


def numbered(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


def values(rows: Iterable[Row]) -> list[str]:
    return sorted(row["value"] for row in rows)


def next_offsets(rows: Iterable[Row]) -> list[Row]:
    """To commit, after these records."""
    ends: dict[tuple[str, int], int] = {}
    for row in rows:
        place = row["topic"], row["partition"]
        ends[place] = max(ends.get(place, 0), row["offset"] + 1)
    return [{"topic": topic, "partition": partition, "offset": end} for (topic, partition), end in ends.items()]


class Reading:
    """One member that is polled: what it owns, and what it has read."""

    def __init__(self, driver: Driver, member: str = "m", *, commits: bool = True) -> None:
        self.driver = driver
        self.member = member
        self.commits = commits
        self.owns: set[tuple[str, int]] = set()
        self.revoked = 0
        self.rows: list[Row] = []

    async def poll(self) -> list[Row]:
        polled = await self.driver("poll", member=self.member, timeout_s=POLL_S)
        self.owns |= {(topic, partition) for topic, partition in polled["assigned"]}
        self.owns -= {(topic, partition) for topic, partition in (*polled["revoked"], *polled["lost"])}
        self.revoked += len(polled["revoked"]) + len(polled["lost"])
        rows: list[Row] = polled["records"]
        if self.commits and rows:
            done = await self.driver("commit", member=self.member, offsets=next_offsets(rows))
            certain = {(one["topic"], one["partition"]) for one in done["committed"]}
            rows = [row for row in rows if (row["topic"], row["partition"]) in certain]
        self.rows += rows
        return rows


async def until(what: str, condition: Callable[[], bool], *polls: Reading) -> None:
    """Polls the members in turn until it holds."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while not condition():
        assert loop.time() - begin < WITHIN_S, f"not within {WITHIN_S:.0f} s: {what}"
        for one in polls:
            await one.poll()


# -- the cases


async def write_and_read(case: Case) -> None:
    """Records come back once, in order by partition, with keys and values of any text; null keys stay null."""
    await case.create()
    async with case.driver() as driver:
        given = [*lines(numbered("v", 60)), {"value": "schön ☃", "key": "ключ", "partition": 0}]
        done = await driver("produce", producer="p", topic=case.topic, records=given)
        assert [one["partition"] for one in done["offsets"]] == [one["partition"] for one in given]
        rows = await case.read_back(driver, case.topic, values(given))
        first = [row for row in rows if row["partition"] == 0]
        assert [row["offset"] for row in first] == list(range(len(first)))
        assert (first[-1]["key"], first[-1]["value"]) == ("ключ", "schön ☃")
        assert first[0]["key"] is None


async def too_large(case: Case) -> None:
    """A record above max.message.bytes is refused as MESSAGE_TOO_LARGE, and the producer goes on."""
    await case.create()
    async with case.driver() as driver:
        await driver("produce", producer="p", topic=case.topic, records=lines(["before"]))
        large = [{"value": "x" * 1_500_000, "partition": 0}]
        assert await driver.refused("produce", producer="p", topic=case.topic, records=large) == "MESSAGE_TOO_LARGE"
        await driver("produce", producer="p", topic=case.topic, records=lines(["after"]))
        await case.read_back(driver, case.topic, ["after", "before"])


async def too_large_behind(case: Case) -> None:
    """Behind one that is written: OUTCOME_UNKNOWN without RetryInfo where both are in one request, which then is not
    repeated. The producer goes on.
    """
    await case.create()
    fits = "x" * 900_000
    records = [{"value": value, "partition": 0} for value in (fits, "x" * 1_500_000)]
    async with case.driver() as driver:
        async with asyncio.timeout(TIMEOUT_S):
            code = await driver.refused(
                "produce", producer="p", topic=case.topic, records=records, timeout_s=2 * TIMEOUT_S
            )
        assert code in ("MESSAGE_TOO_LARGE", "OUTCOME_UNKNOWN")
        await driver("produce", producer="p", topic=case.topic, records=lines(["after"]))
        await case.read_back(driver, case.topic, ["after", fits])


async def bad_offset(case: Case) -> None:
    """Reading from beyond the end is OFFSET_OUT_OF_RANGE."""
    await case.create()
    async with case.driver() as driver:
        await driver("produce", producer="p", topic=case.topic, records=lines(["one"]))
        assert await driver.refused("read", topic=case.topic, partition=0, start=1_000_000) == "OFFSET_OUT_OF_RANGE"


async def transactions(case: Case) -> None:
    """Readers of committed records see what was committed, and nothing of what was aborted or is open."""
    await case.create()
    async with case.driver() as driver:
        await driver(
            "open_transactions", producer="t", transactional_id=case.transactional_id, transaction_timeout_ms=60_000
        )
        for name, end in (("a", "commit"), ("b", "abort"), ("c", "commit")):
            await driver("transact", producer="t", topic=case.topic, records=lines(numbered(name, 6)))
            done = await driver("transact", producer="t", topic=case.topic, end=end)
            assert done["outcome"] == {"commit": "committed", "abort": "aborted"}[end]
        await driver("transact", producer="t", topic=case.topic, records=lines(numbered("d", 6)))
        committed = sorted(numbered("a", 6) + numbered("c", 6))
        await case.read_back(driver, case.topic, committed)
        everything = sorted(value for name in "abcd" for value in numbered(name, 6))
        assert values(await case.read(driver, case.topic, committed=False)) == everything
        assert (await driver("transact", producer="t", topic=case.topic, end="commit"))["outcome"] == "committed"
        await case.read_back(driver, case.topic, sorted(committed + numbered("d", 6)))


async def fence(case: Case) -> None:
    """A second producer of a transactional id fences the first, and what that one left open is aborted."""
    await case.create()
    async with case.driver() as first, case.driver() as second:
        opening: Row = {"transactional_id": case.transactional_id, "transaction_timeout_ms": 60_000}
        await first("open_transactions", producer="t", **opening)
        await first("transact", producer="t", topic=case.topic, records=lines(["old"]))
        await second("open_transactions", producer="t", **opening)
        code = await first.refused("transact", producer="t", topic=case.topic, records=lines(["older"]), end="commit")
        assert code == "PRODUCER_FENCED"
        await second("transact", producer="t", topic=case.topic, records=lines(["new"]), end="commit")
        await case.read_back(second, case.topic, ["new"])


async def group_resumes(case: Case) -> None:
    """A member reads everything; after it has left, another one starts at the committed offsets."""
    await case.create()
    async with case.driver() as driver:
        await driver("produce", producer="p", topic=case.topic, records=lines(numbered("a", 30)))
        await case.join(driver)
        reading = Reading(driver)
        await until("30 records are read", lambda: len(reading.rows) >= 30, reading)
        await driver("leave", member="m")
        await driver("produce", producer="p", topic=case.topic, records=lines(numbered("b", 30)))
        await case.join(driver)
        again = Reading(driver)
        await until("30 more records are read", lambda: len(again.rows) >= 30, again)
        await driver("leave", member="m")
        assert values(reading.rows) == sorted(numbered("a", 30))
        assert values(again.rows) == sorted(numbered("b", 30))


async def rebalance(case: Case) -> None:
    """A second member gets some of the partitions; what the first had not committed of them is read again, once; when
    the first leaves, the second has them all.
    """
    await case.create()
    async with case.driver() as one, case.driver() as two:
        await one("produce", producer="p", topic=case.topic, records=lines(numbered("a", 30)))
        await case.join(one)
        first = Reading(one, commits=False)
        await until("the first member reads all", lambda: len(first.rows) >= 30, first)
        await case.join(two)
        second = Reading(two)
        await until(
            "each member has partitions",
            lambda: bool(first.owns and second.owns) and len(first.owns | second.owns) == PARTITIONS,
            first,
            second,
        )
        assert first.revoked
        assert not first.owns & second.owns
        moved = [row for row in first.rows if (row["topic"], row["partition"]) in second.owns]
        await until(
            "the second member reads what was not committed", lambda: len(second.rows) >= len(moved), first, second
        )
        assert values(second.rows) == values(moved)
        await one("leave", member="m")
        await until("the second member has all partitions", lambda: len(second.owns) == PARTITIONS, second)
        await until("the second member reads the rest", lambda: len(second.rows) >= 30, second)
        assert values(second.rows) == sorted(numbered("a", 30))


async def exactly_once(case: Case) -> None:
    """Offsets are committed with the records of a transaction, or not at all."""
    await case.create()
    target = await case.create(f"{case.topic}-to")
    async with case.driver() as driver:
        await driver("produce", producer="p", topic=case.topic, records=lines(numbered("a", 30)))
        await driver(
            "open_transactions", producer="t", transactional_id=case.transactional_id, transaction_timeout_ms=60_000
        )
        for end, outcome in (("abort", "aborted"), ("commit", "committed")):
            await case.join(driver)
            reading = Reading(driver, commits=False)
            while len(reading.rows) < 30:
                rows = await reading.poll()
                if not rows:
                    continue
                done = await driver(
                    "transact",
                    producer="t",
                    topic=target,
                    records=[{"value": row["value"].upper()} for row in rows],
                    member="m",
                    offsets=next_offsets(rows),
                    end=end,
                )
                assert done == {"outcome": outcome, "refused": ""}
            await driver("leave", member="m")
        await case.read_back(driver, target, sorted(value.upper() for value in numbered("a", 30)))
        await driver("produce", producer="p", topic=case.topic, records=lines(["next"]))
        await case.join(driver)
        last = Reading(driver)
        await until("the next record is read", lambda: bool(last.rows), last)
        assert values(last.rows) == ["next"]


async def revoke(case: Case) -> None:
    """A member that is silent for too long loses its partitions, and the offsets that it still sends are refused."""
    await case.create()
    target = await case.create(f"{case.topic}-to")
    async with case.driver() as one, case.driver() as two:
        await one("produce", producer="p", topic=case.topic, records=lines(numbered("a", 30)))
        await one(
            "open_transactions", producer="t", transactional_id=case.transactional_id, transaction_timeout_ms=60_000
        )
        await case.join(one, processing_timeout_ms=2_000)
        slow = Reading(one, commits=False)
        await until("the slow member reads", lambda: bool(slow.rows), slow)
        await case.join(two)
        second = Reading(two)  # the first is not polled any more
        await until("the second member has all partitions", lambda: len(second.owns) == PARTITIONS, second)
        await until("the second member reads all", lambda: len(second.rows) >= 30, second)
        done = await one(
            "transact",
            producer="t",
            topic=target,
            records=lines(["late"]),
            member="m",
            offsets=next_offsets(slow.rows),
            end="commit",
        )
        assert done["outcome"] == "aborted"
        assert done["refused"] in MISSED
        assert await case.read(two, target) == []


async def leader_killed(case: Case) -> None:
    """kill -9 of the leader: requests go on without an error, each record is in the log once and in order."""
    await case.create()
    async with case.driver() as driver:
        for batch in range(40):
            if batch == 10:
                leader = await case.processes.leader(case.topic, 0)
                case.processes.kill(leader)
            records = [{"value": f"{batch:03}-{number}", "partition": 0} for number in range(5)]
            await driver("produce", producer="p", topic=case.topic, records=records)
        await case.restart(leader)
        rows = await case.read(driver, case.topic)
        assert [row["value"] for row in rows] == [f"{batch:03}-{number}" for batch in range(40) for number in range(5)]


async def coordinator_killed(case: Case) -> None:
    """kill -9 of the coordinator of group and transactions, with a transaction open: it commits, and no record is
    lost or read twice.
    """
    await case.create()
    target = await case.create(f"{case.topic}-to")
    async with case.driver() as driver:
        await driver("produce", producer="p", topic=case.topic, records=lines(numbered("a", 30)))
        await driver(
            "open_transactions", producer="t", transactional_id=case.transactional_id, transaction_timeout_ms=60_000
        )
        await case.join(driver)
        reading = Reading(driver)
        await until("records are read", lambda: len(reading.rows) >= 30, reading)
        await driver("transact", producer="t", topic=target, records=lines(numbered("x", 6)))
        count = len((await case.processes.admin.describe_topic(OFFSETS_TOPIC)).partitions)
        coordinator = await case.processes.leader(OFFSETS_TOPIC, group_partition(case.group, count))
        case.processes.kill(coordinator)
        assert (await driver("transact", producer="t", topic=target, records=lines(["y"]), end="commit"))[
            "outcome"
        ] == "committed"
        await driver("produce", producer="p", topic=case.topic, records=lines(numbered("b", 30)))
        await until("the records after the kill are read", lambda: len(reading.rows) >= 60, reading)
        await case.restart(coordinator)
        assert Counter(values(reading.rows)) == Counter(numbered("a", 30) + numbered("b", 30))
        await case.read_back(driver, target, sorted([*numbered("x", 6), "y"]))


CASES: Final[dict[str, Callable[[Case], Awaitable[None]]]] = {
    case.__name__: case
    for case in (
        write_and_read,
        too_large,
        too_large_behind,
        bad_offset,
        transactions,
        fence,
        group_resumes,
        rebalance,
        exactly_once,
        revoke,
        leader_killed,
        coordinator_killed,
    )
}
