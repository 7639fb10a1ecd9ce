"""The columns of format("streamlog"): Kafka's, as types of Spark and of Arrow.

A query may select some of them, in any order: `.schema("value binary, timestamp timestamp")`. The Arrow batches must
match the declared schema exactly, including the order and the integer types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from streamlog.spark.failures import StreamlogSparkError

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
HEADERS: Final = "headers"


def ddl(*, headers: bool) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items() if headers or name != HEADERS)


def checked_columns(fields: Sequence[tuple[str, str]], *, headers: bool) -> tuple[str, ...]:
    """The names of a schema's (name, type) pairs. StreamlogSparkError for an unknown column or a wrong type."""
    for name, kind in fields:
        if name not in COLUMNS:
            raise StreamlogSparkError(f"schema: unknown column {name}; the columns are {', '.join(COLUMNS)}")
        if kind != COLUMNS[name]:
            raise StreamlogSparkError(f"schema: column {name} is {COLUMNS[name]}, not {kind}; cast it after load()")
        if name == HEADERS and not headers:
            raise StreamlogSparkError("schema: column headers needs option includeHeaders=true")
    if not fields:
        raise StreamlogSparkError("schema: it has no columns")
    return tuple(name for name, _ in fields)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        HEADERS: pa.list_(header),
    }
    return pa.schema([pa.field(name, kinds[name]) for name in columns])
