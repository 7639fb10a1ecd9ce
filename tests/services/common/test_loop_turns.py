"""Many that read at once do not hold up the event loop: each of its turns has a bounded part of what they read."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from streamlog.services.common.loop_turns import LoopTurns
from streamlog.services.common.outgoing import READ_BYTES, SHARED_TURN_BYTES, TURN_BYTES, OutgoingBytes

MIB = 1 << 20


def test_a_turn_has_one_large_message() -> None:
    async def main() -> None:
        budget = OutgoingBytes(1_000 * MIB)
        turn, read = 0, Counter[int]()
        order: list[int] = []

        async def count_turns() -> None:
            nonlocal turn
            while True:
                await asyncio.sleep(0)
                turn += 1

        async def reads(number: int, size: int, times: int) -> None:
            reader = budget.reader()
            for _ in range(times):
                given = await reader.reserve(size)
                assert given in (size, min(size, SHARED_TURN_BYTES))
                assert reader.try_keep(given)
                read[turn] += given
                order.append(number)
                reader.sent()

        counting = asyncio.ensure_future(count_turns())
        await asyncio.gather(*(reads(number, 4 * MIB, 5) for number in range(17)))
        # The end of one turn and the beginning of the next may have the same number.
        most = max(read.values())
        assert most <= 4 * MIB + 2 * TURN_BYTES  # the first did not know yet that others would wait
        assert sorted(read.values())[-3] <= 2 * TURN_BYTES
        assert set(Counter(order[:35]).values()) <= {2, 3}  # in turn
        read.clear()
        await asyncio.gather(*(reads(number, 64 << 10, 10) for number in range(160)))
        assert max(read.values()) <= 2 * TURN_BYTES
        read.clear()
        before = turn
        await asyncio.gather(*(reads(number, 1_000, 1) for number in range(20)))  # a few small ones do not wait
        assert turn - before <= 3
        read.clear()
        order.clear()
        await asyncio.gather(*(reads(number, 100, 1) for number in range(4_000)))  # as when one record ends long polls
        assert max(read.values()) <= 2 * 100 * TURN_BYTES // READ_BYTES
        assert order == list(range(4_000))
        counting.cancel()

    asyncio.run(main())


def test_who_leaves_the_line_gives_back_its_bytes_and_its_turn() -> None:
    async def main() -> None:
        budget = OutgoingBytes(100 * MIB)
        readers = [budget.reader() for _ in range(4)]

        async def reads_first() -> None:
            await readers[0].reserve(MIB)
            assert readers[0].try_keep(TURN_BYTES)

        tasks = [asyncio.ensure_future(work) for work in (reads_first(), *(one.reserve(MIB) for one in readers[1:]))]
        await asyncio.sleep(0)
        assert [task.done() for task in tasks] == [True, False, False, False]
        tasks[1].cancel()
        await asyncio.wait(tasks)
        assert tasks[1].cancelled()
        assert [readers[number].held_bytes > 0 for number in range(4)] == [True, False, True, True]
        for one in readers:
            one.close()
        assert budget.used_bytes == 0

    asyncio.run(main())


@pytest.mark.parametrize("pauses", [1, 4, 6, 8])
def test_who_does_something_else_between_its_reads_does_not_keep_others_from_theirs(pauses: int) -> None:
    async def main() -> None:
        budget = OutgoingBytes(1_000 * MIB)
        reads = [0] * 12

        async def read_on(number: int) -> None:
            reader = budget.reader()
            while True:
                await reader.reserve(4 * MIB)
                assert reader.try_keep(4 * MIB)
                reads[number] += 1
                reader.sent()
                for _ in range(pauses):
                    await asyncio.sleep(0)

        reading = [asyncio.ensure_future(read_on(number)) for number in range(12)]
        for _ in range(1_000):
            await asyncio.sleep(0)
        for task in reading:
            task.cancel()
        assert min(reads) > 50
        assert max(reads) - min(reads) <= 2

    asyncio.run(main())


def test_what_is_kept_twice_counts_once() -> None:
    async def main() -> None:
        budget = OutgoingBytes(100 * MIB)
        first, second = budget.reader(), budget.reader()
        size = TURN_BYTES * 3 // 4
        await first.reserve(size)
        assert first.try_keep(size)
        assert first.try_keep(size + 100)  # with what is around it
        reserving = second.reserve(size)
        with pytest.raises(StopIteration):  # it does not wait
            reserving.send(None)
        first.close()
        second.close()

    asyncio.run(main())


def test_who_reads_alone_gets_large_messages() -> None:
    async def main() -> None:
        reader = OutgoingBytes(100 * MIB).reader()
        for _ in range(5):
            assert await reader.reserve(4 * MIB) == 4 * MIB
            assert reader.try_keep(4 * MIB)
            reader.sent()

    asyncio.run(main())


def test_those_in_line_have_their_turns_in_order_and_who_leaves_it_is_passed_over() -> None:
    async def main() -> None:
        turns, order = LoopTurns(room=10, least=4), list[str]()

        async def works(name: str, more: int) -> None:
            await turns.begin()
            turns.took(more)
            order.append(name)

        pieces = (("a", 0), ("b", 0), ("c", 20), ("gone", 0), ("d", 20), ("e", 0), ("f", 6), ("g", 0))
        tasks = {name: asyncio.ensure_future(works(name, more)) for name, more in pieces}
        done: list[str] = []
        while len(order) < 7:
            await asyncio.sleep(0)
            tasks["gone"].cancel()
            done.append("".join(order[len("".join(done)) :]))
        assert "".join(done) == "abcdefg"
        assert [turn for turn in done if turn] == ["abc", "d", "ef", "g"]

    asyncio.run(main())
