"""Futures by offset, against a list of them."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from streamlog.aio.offset_waiters import SWEPT_FROM, OffsetWaiters
from streamlog.errors import OutcomeUnknownError
from streamlog.model import Offset

OFFSETS = st.lists(st.integers(0, 20), max_size=12)


@given(OFFSETS, st.integers(0, 20), st.sets(st.integers(0, 11)))
def test_what_is_reached_and_what_is_above(offsets: list[int], bound: int, cancelled: set[int]) -> None:
    async def main() -> None:
        for split in (OffsetWaiters.reached, OffsetWaiters.above):
            waiters = OffsetWaiters()
            futures = [waiters.add(Offset(offset)) for offset in offsets]
            for number in cancelled & set(range(len(futures))):
                futures[number].cancel()
            found = split(waiters, Offset(bound))
            belongs = [(offset <= bound) is (split is OffsetWaiters.reached) for offset in offsets]
            expected = [i for i in range(len(offsets)) if belongs[i] and i not in cancelled]
            if split is OffsetWaiters.reached:  # in order, equals by arrival
                expected.sort(key=lambda i: (offsets[i], i))
            assert {id(future) for _, future in found} == {id(futures[i]) for i in expected}
            if split is OffsetWaiters.reached:
                assert [future for _, future in found] == [futures[i] for i in expected]
            assert len(waiters) == belongs.count(False)

    asyncio.run(main())


def test_all_fail_at_once() -> None:
    async def main() -> None:
        waiters = OffsetWaiters()
        first, second = waiters.add(Offset(1)), waiters.add(Offset(2))
        first.cancel()
        waiters.fail_all(OutcomeUnknownError("the leadership ended"))
        assert isinstance(second.exception(), OutcomeUnknownError)
        assert len(waiters) == 0

    asyncio.run(main())


def test_cancelled_waiters_are_not_kept_while_the_offset_stands_still() -> None:
    async def main() -> None:
        waiters = OffsetWaiters()
        kept = []
        for number in range(20 * SWEPT_FROM):
            future = waiters.add(Offset(number))
            if number % 20:
                future.cancel()
            else:
                kept.append((Offset(number), future))
        assert len(waiters) <= 2 * len(kept)
        assert waiters.reached(Offset(20 * SWEPT_FROM)) == kept

    asyncio.run(main())
