"""asyncio on SimLoop: what works as it does elsewhere, and what is caught that elsewhere is not."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from streamlog.sim import Deadlock, Killed, Livelock, Machine, Order, Process, SimError, SimLoop, run
from streamlog.sim.loop import SPIN_MAX

ORDERS = [Order.FIFO, Order.SHUFFLE]


def test_time_jumps_and_timeouts_fire_in_virtual_time() -> None:
    async def main(loop: SimLoop) -> float:
        begin = loop.time()
        await asyncio.sleep(86_400)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        return loop.time() - begin

    begin = time.perf_counter()
    assert run(main, until_s=1e6) == 86_410
    assert time.perf_counter() - begin < 5


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(5))
def test_primitives_work_unchanged(order: Order, seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        lock, semaphore, condition, out = asyncio.Lock(), asyncio.Semaphore(2), asyncio.Condition(), []

        async def put() -> None:
            for i in range(10):
                await queue.put(i)

        async def get() -> None:
            for _ in range(10):
                out.append(await queue.get())

        async def locked() -> None:
            async with lock, semaphore:
                await asyncio.sleep(0.1)

        async def notify() -> None:
            async with condition:
                condition.notify()

        async with asyncio.TaskGroup() as group:
            group.create_task(put())
            group.create_task(get())
            for _ in range(5):
                group.create_task(locked())
        assert out == list(range(10))
        async with asyncio.TaskGroup() as group, condition:
            group.create_task(notify())
            await condition.wait()

    run(main, seed=seed, order=order)


def test_a_failing_task_of_a_group_cancels_the_others() -> None:
    async def main(loop: SimLoop) -> list[int]:
        ended = []

        async def wait(i: int) -> None:
            try:
                await asyncio.sleep(99)
            finally:
                ended.append(i)

        async def fail() -> None:
            await asyncio.sleep(1)
            raise ValueError("one is enough")

        async def group_work() -> None:
            async with asyncio.TaskGroup() as group:
                for i in range(8):
                    group.create_task(wait(i))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup):
            await group_work()
        assert loop.now == 1.0
        return ended

    # asyncio cancels them by iterating over a set: with tasks that hash by address this order is another in each run
    assert run(main, order=Order.FIFO) == list(range(8))


def order_of_steps(seed: int, order: Order) -> list[int]:
    async def main(loop: SimLoop) -> list[int]:
        out: list[int] = []

        async def work(i: int) -> None:
            out.append(i)
            await asyncio.sleep(0)
            out.append(-i)

        await asyncio.gather(*(work(i) for i in range(1, 9)))
        return out

    return run(main, seed=seed, order=order)


def test_a_seed_is_an_order() -> None:
    assert order_of_steps(1, Order.SHUFFLE) == order_of_steps(1, Order.SHUFFLE)
    assert order_of_steps(1, Order.SHUFFLE) != order_of_steps(2, Order.SHUFFLE)
    straight = [*range(1, 9), *range(-1, -9, -1)]
    assert order_of_steps(1, Order.FIFO) == order_of_steps(2, Order.FIFO) == straight


def test_timers_are_late_and_early_by_the_jitter() -> None:
    async def main(loop: SimLoop) -> list[float]:
        offs = []
        for _ in range(200):
            begin = loop.now
            await asyncio.sleep(0.1)
            offs.append(loop.now - begin - 0.1)
        return offs

    offs = run(main, jitter_s=(-1e-3, 2e-3))
    assert -1e-3 <= min(offs) < -5e-4
    assert 1e-3 < max(offs) <= 2e-3


async def stuck(loop: SimLoop) -> None:
    await asyncio.Event().wait()


async def spin(loop: SimLoop) -> None:
    while True:  # noqa: ASYNC110  the fault under test
        await asyncio.sleep(0)


async def for_ever(loop: SimLoop) -> None:
    while True:  # noqa: ASYNC110  the fault under test
        await asyncio.sleep(1)


async def leak(loop: SimLoop) -> None:
    loop.create_task(asyncio.sleep(1000))
    await asyncio.sleep(0)


async def lose_exception(loop: SimLoop) -> None:
    async def fail() -> None:
        raise ValueError("not retrieved")

    task = loop.create_task(fail())
    await asyncio.sleep(1)
    assert task.done()


async def forget_await(loop: SimLoop) -> None:
    asyncio.sleep(1)  # type: ignore[unused-coroutine]  # the fault under test


async def fail_in_callback(loop: SimLoop) -> None:
    loop.call_soon(lambda: 1 // 0)
    await asyncio.sleep(1)


async def start_thread(loop: SimLoop) -> None:
    await asyncio.to_thread(print)


@pytest.mark.parametrize(
    ("main", "error", "says"),
    [
        (stuck, Deadlock, r"test_loop\.py:\d+"),
        (spin, Livelock, str(SPIN_MAX)),
        (for_ever, TimeoutError, "not done at t=100"),
        (leak, SimError, "leaked"),
        (lose_exception, SimError, "unretrieved.*not retrieved"),
        (forget_await, SimError, "never awaited"),
        (fail_in_callback, SimError, "ZeroDivisionError"),
        (start_thread, SimError, "Workers"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_asyncio_would_hide_is_an_error(
    main: Callable[[SimLoop], Coroutine[Any, Any, None]], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        run(main, until_s=100, order=Order.FIFO)
    assert gc.isenabled()


def test_a_machine_does_not_wait_for_ever_beside_a_periodic_task() -> None:
    machine = Machine()

    async def never(ready: asyncio.Event) -> None:
        asyncio.get_running_loop().create_task(tick())
        await ready.wait()

    async def tick() -> None:
        while True:  # noqa: ASYNC110  a periodic task
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError, match=r"not done at t=3600.*test_loop\.py:\d+"):
        machine.run(never(asyncio.Event()))
    machine.crash()
    machine.sleep(86_400)
    machine.close()


@pytest.mark.parametrize("paused", [False, True])
def test_a_process_that_dies_before_it_gets_an_exception_has_not_lost_it(paused: bool) -> None:
    async def main(loop: SimLoop) -> None:
        process = Process("node")

        async def fail() -> None:
            if paused:
                loop.pause(process)
            else:
                process.kill()
            raise ValueError("no task is left to retrieve it")

        async def node() -> None:
            await loop.create_task(fail())

        loop.create_task(node(), context=process.context())
        await asyncio.sleep(1)
        process.kill()

    run(main, until_s=100, order=Order.FIFO)


def test_a_kill_runs_no_finally_and_a_pause_keeps_all() -> None:
    async def main(loop: SimLoop) -> None:
        seen: list[object] = []

        async def node() -> None:
            try:
                while True:
                    await asyncio.sleep(0.1)
                    seen.append(loop.now)
            finally:
                seen.append("finally")

        process = Process("node")
        loop.create_task(node(), context=process.context())
        await asyncio.sleep(0.35)
        loop.pause(process)
        await asyncio.sleep(5)
        assert len(seen) == 3
        loop.resume(process)
        await asyncio.sleep(0.15)
        assert len(seen) == 5
        process.kill()
        await asyncio.sleep(9)
        gc.collect()
        assert len(seen) == 5

    run(main)


def test_children_of_a_process_die_with_it() -> None:
    async def main(loop: SimLoop) -> list[str]:
        seen: list[str] = []

        async def child() -> None:
            await asyncio.sleep(2)
            seen.append("child")

        async def node() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())

        process = Process("node")
        loop.create_task(node(), context=process.context())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(9)
        return seen

    assert run(main) == []


def test_a_machine_goes_on_from_step_to_step_and_tells_leaks_at_the_end() -> None:
    machine = Machine()
    ticks = []

    async def start() -> asyncio.Task[None]:
        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                ticks.append(machine.clock.monotonic())

        return asyncio.create_task(tick())

    machine.run(start())
    machine.sleep(3.5)
    assert ticks == [1, 2, 3]
    machine.crash()
    machine.sleep(3.5)
    assert ticks == [1, 2, 3]
    machine.run(start())
    with pytest.raises(SimError, match="leaked machine#2"):
        machine.close()


def test_a_machine_cut_at_each_change_dies_there() -> None:
    async def work(machine: Machine) -> None:
        fs = machine.fs
        fs.mkdir("/d")
        file = fs.open("/d/a", create=True)
        for i in range(3):
            file.pwritev([b"x"], i)
        await file.sync()

    sizes = []
    for changes in range(8):
        machine = Machine()
        machine.cut_after(changes)
        if changes < 7:
            with pytest.raises(Killed):
                machine.run(work(machine))
        else:
            machine.run(work(machine))
        machine.crash()
        sizes.append(machine.fs.open("/d/a").size() if machine.fs.exists("/d/a") else None)
        machine.close()
    # mkdir, create, three writes, begin and end of the sync
    assert sizes == [None, None, 0, 1, 2, 3, 3, 3]
