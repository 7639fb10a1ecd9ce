"""The process that decodes by schemas: it may be made to run for ever or to end, and the console goes on."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator

import pytest

from streamlog.console.decoding.process import BATCH_S, FAILURES_MAX, Schema, SchemaDecoder
from streamlog.console.decoding.schemas import SCHEMA_BYTES_MAX, SchemaError

pytest.importorskip("fastavro", reason="streamlog[console] is not installed")
pytestmark = [pytest.mark.process]

NULLS = json.dumps({"type": "array", "items": "null"}).encode()
LINKS = json.dumps({"type": "record", "name": "link", "fields": [{"name": "next", "type": ["null", "link"]}]}).encode()
TWO_NULLS = b"\x04\x00"
ENDLESS = b"\x80\x80\x80\x80\x80\x80\x80\x80\x40\x00"  # 2^61 nulls in ten bytes
LONG_CHAIN = b"\x02" * 1_500_000


@pytest.fixture
async def decoder() -> AsyncIterator[SchemaDecoder]:
    found = SchemaDecoder(now_s=lambda: 0.0)  # a busy machine must not end a batch
    yield found
    await found.close()


async def test_values_that_fit_do_not_fit_or_are_null(decoder: SchemaDecoder) -> None:
    assert list(await decoder.messages(NULLS)) == []
    shown = await decoder.shown(Schema(NULLS), [TWO_NULLS, None, b"\xff"])
    assert json.loads(shown[0].text) == [None, None]
    assert shown[1].text == "null"
    assert shown[2].problem.startswith("not of the schema")


async def test_a_value_that_never_ends_is_given_up_and_the_next_one_is_decoded(decoder: SchemaDecoder) -> None:
    shown = await decoder.shown(Schema(NULLS), [ENDLESS, TWO_NULLS])
    assert shown[0].problem.startswith("not decoded")
    assert json.loads(shown[1].text) == [None, None]


async def test_a_value_that_ends_the_process_does_not_end_the_console(decoder: SchemaDecoder) -> None:
    shown = await decoder.shown(Schema(LINKS), [LONG_CHAIN, b"\x02\x00"])
    assert shown[0].problem
    assert json.loads(shown[1].text) == {"next": {"next": None}}


async def test_a_batch_has_a_limit_of_time() -> None:
    ticks = itertools.count(0.0, BATCH_S)
    decoder = SchemaDecoder(now_s=lambda: next(ticks))
    shown = await decoder.shown(Schema(NULLS), [TWO_NULLS] * 4)
    await decoder.close()
    assert [one.problem == "" for one in shown] == [True, False, False, False]


async def test_after_some_failures_the_rest_is_shown_as_text(decoder: SchemaDecoder) -> None:
    shown = await decoder.shown(Schema(LINKS), [LONG_CHAIN] * (FAILURES_MAX + 5) + [b"\x00"])
    assert all(one.problem for one in shown)
    assert "values before" in shown[-1].problem


async def test_schemas_that_cannot_be_used(decoder: SchemaDecoder) -> None:
    for schema in (b"{", b"\xff" * 100, b"{" + b" " * SCHEMA_BYTES_MAX, b'{"type":"array","items":' * 30_000):
        with pytest.raises(SchemaError):
            await decoder.messages(schema)
    assert "not an Avro schema" in (await decoder.shown(Schema(b"{"), [b"x"]))[0].problem


async def test_it_starts_again_after_it_was_killed(decoder: SchemaDecoder) -> None:
    await decoder.messages(NULLS)
    process = decoder._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    first, second = await decoder.shown(Schema(NULLS), [TWO_NULLS, TWO_NULLS])
    assert first.problem
    assert json.loads(second.text) == [None, None]


async def test_a_cancelled_call_leaves_no_answer_for_the_next_one(decoder: SchemaDecoder) -> None:
    await decoder.messages(NULLS)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await decoder.shown(Schema(NULLS), [ENDLESS])
    assert json.loads((await decoder.shown(Schema(NULLS), [TWO_NULLS]))[0].text) == [None, None]
