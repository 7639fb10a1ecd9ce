"""From a seed and a number to the messages of one call. Pure.

random     bytes
valid      every field as a client would have it, of the cluster that is there
mutated    a valid one with bytes flipped, cut, doubled, put in
hostile    fields that can be, with values that no client sends: extremes, unknown enums, control characters, NaN
huge       one list of 100,000 entries, or one text of a megabyte
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from msgspec import Struct

from .batches import batches
from .catalogue import Method
from .known import Known
from .spared import spare
from .templates import templates
from .tokens import token

STRATEGIES: Final = (
    ("random", "valid", "mutated", "mutated", "hostile", "hostile", "huge") + ("perturbed",) * 4 + ("real",)
)
MESSAGE_BYTES_MAX: Final = 3 << 20
_LIST_LENGTH: Final = 100_000
_DEPTH_MAX: Final = 4

_INT_BITS: Final = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_SINT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_SFIXED32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_SINT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_SFIXED64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_FIXED32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_FIXED64: (0, (1 << 64) - 1),
}
_EXTREMES: Final = (
    *(-1, 0, 1, 2, 3, 127, 255, 256, 4095, 32_767, 32_768, 40_000, 65_535, 65_536, 1_000_000),
    *((1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
    *(-2, -(1 << 31), -(1 << 63)),
)
_TEXTS: Final = (
    "",
    "a",
    "x" * 249,
    "x" * 250,
    "x" * 5_000,
    "../../etc/passwd",
    "/",
    ".",
    "..",
    "a\nb",
    "\x1b[2J",
    "a\x00b",
    "\u202egpj",
    "\ufdd0\U0010ffff",
    "NaN",
    "-1",
    "9" * 400,
    "(((((((((((((((((((((a*)*)*)*)*)*)*)*)*)*)*)*",
    "[",
    "\\",
    "__consumer_offsets",
    "__transaction_state",
    "%s%n{0}{x}",
)
_FLOATS: Final = (0.0, -0.0, 1.0, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324)


class Case(Struct, frozen=True, kw_only=True):
    seed: int
    number: int
    method: str
    strategy: str
    shape: str
    node: int  # an index of addresses
    messages: tuple[bytes, ...]
    reads: int  # so many answers are read at most
    metadata: tuple[tuple[str, str], ...] = ()


def make_case(seed: int, number: int, methods: tuple[Method, ...], known: Known, nodes: int) -> Case:
    """Method and shape follow from seed and number alone; ids in the messages also from `known`."""
    rng = random.Random(f"{seed}:{number}")
    [method] = rng.choices(methods, _weights(methods))
    strategy = rng.choice(STRATEGIES)
    if strategy in ("real", "perturbed") and templates(method.request) is None:
        strategy = "hostile"
    count = 1 if not method.client_streaming else rng.choice((0, 1, 1, 2, 3, 5, 20))
    if strategy in ("real", "perturbed"):
        messages = _from_template(rng, method, strategy, known)
    else:
        messages = [_one(rng, method, strategy, known) for _ in range(count)]
    if method.client_streaming and rng.random() < 0.2:
        rng.shuffle(messages)  # an opening message anywhere but first
    return Case(
        seed=seed,
        number=number,
        method=method.path,
        strategy=strategy,
        shape=rng.choice(_UNARY_SHAPES if method.is_unary else _STREAM_SHAPES),
        node=rng.randrange(nodes),
        messages=tuple(messages),
        reads=rng.choice((1, 3, 50)),
        metadata=rng.choice(_METADATA) if rng.random() < 0.1 else (),
    )


@functools.cache
def _weights(methods: tuple[Method, ...]) -> tuple[int, ...]:
    """Calls between nodes have the most state, and no other test sends them unusual values."""
    return tuple(
        8
        if "Raft/Exchange" in method.path
        else 4
        if ".internal." in method.path
        else 2
        if templates(method.request)
        else 1
        for method in methods
    )


# The first marks a call that one node forwards to another.
_METADATA: Final = (
    (("streamlog-forwarded", "1"),),
    (("streamlog-forwarded", "x" * 4_000),),
    (("x" * 200, "y"),),
    (("authorization", "Bearer x"), ("x-forwarded-for", "127.0.0.1")),
)
_UNARY_SHAPES: Final = ("whole",) * 8 + ("cancel", "short")
_STREAM_SHAPES: Final = ("whole",) * 5 + ("half-open", "half-open", "unread", "cancel", "short")


def _one(rng: random.Random, method: Method, strategy: str, known: Known) -> bytes:
    if strategy == "random":
        return rng.randbytes(rng.choice((0, 1, 2, 7, 60, 2_000)))
    maker = Maker(rng, known, hostile=strategy in ("hostile", "huge"))
    message = method.request()
    for _ in range(4):
        maker.fill(message, 0)
        if message.ByteSize():
            break
    if strategy == "huge":
        maker.blow_up(message)
    spare(message, known)
    data: bytes = message.SerializeToString()
    if strategy == "mutated":
        data = _mutated(rng, data)
        data = _spared_again(method, data, known)
    return data if len(data) <= MESSAGE_BYTES_MAX else data[:MESSAGE_BYTES_MAX]


def _from_template(rng: random.Random, method: Method, strategy: str, known: Known) -> list[bytes]:
    make = templates(method.request)
    assert make is not None
    messages = make(rng, known)
    if strategy == "perturbed":
        maker = Maker(rng, known, hostile=True)
        for _ in range(rng.randint(1, 3)):
            maker.perturb(rng.choice(messages))
    for message in messages:
        spare(message, known)
    return [message.SerializeToString()[:MESSAGE_BYTES_MAX] for message in messages]


def _spared_again(method: Method, data: bytes, known: Known) -> bytes:
    """A mutation may have made a node's id of another number."""
    message = method.request()
    try:
        message.ParseFromString(data)
    except Exception:  # noqa: BLE001  protobuf's own classes, of several kinds: what is no message changes nothing
        return data
    before = message.SerializeToString()
    spare(message, known)
    after: bytes = message.SerializeToString()
    return data if after == before else after


def _mutated(rng: random.Random, data: bytes) -> bytes:
    bytes_ = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(bytes_) + 1)
        match rng.randrange(5):
            case 0 if at < len(bytes_):
                bytes_[at] ^= 1 << rng.randrange(8)
            case 1:
                del bytes_[at:]
            case 2:
                bytes_[at:at] = rng.randbytes(rng.randint(1, 9))
            case 3:
                bytes_[at:at] = bytes_[at : at + rng.randint(1, 40)]
            case _:
                del bytes_[at : at + rng.randint(1, 9)]
    return bytes(bytes_)


class Maker:
    def __init__(self, rng: random.Random, known: Known, *, hostile: bool) -> None:
        self._rng = rng
        self._known = known
        self._hostile = hostile

    def fill(self, message: Message, depth: int) -> None:
        descriptor: Any = message.DESCRIPTOR
        for field in _chosen(self._rng, descriptor):
            if field.type == FieldDescriptor.TYPE_MESSAGE and depth >= _DEPTH_MAX:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                self._map(getattr(message, field.name), field)
            elif field.is_repeated:
                self._list(getattr(message, field.name), field, self._rng.choice((0, 1, 1, 2, 3)), depth)
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                part = getattr(message, field.name)
                part.SetInParent()
                self.fill(part, depth + 1)
            else:
                setattr(message, field.name, self.value(field))

    def perturb(self, message: Message) -> None:
        """A hostile value in one field of it, or of one of its parts: more often of those that are there."""
        if not message.DESCRIPTOR.fields:
            return
        present = [field for field, _ in message.ListFields()]
        field: Any = self._rng.choice(
            present if present and self._rng.random() < 0.8 else list(message.DESCRIPTOR.fields)
        )
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._map(getattr(message, field.name), field)
        elif field.is_repeated:
            items = getattr(message, field.name)
            if field.type == FieldDescriptor.TYPE_MESSAGE and len(items) and self._rng.random() < 0.8:
                self.perturb(self._rng.choice(items))
            else:
                self._list(items, field, self._rng.choice((1, 2, 50)), _DEPTH_MAX - 1)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            self.perturb(getattr(message, field.name))
        else:
            setattr(message, field.name, self.value(field))

    def blow_up(self, message: Message) -> None:
        """One field of it, or of a part of it, is enormous."""
        fields: list[Any] = [field for field in message.DESCRIPTOR.fields if field.type != FieldDescriptor.TYPE_BOOL]
        if not fields:
            return
        field = self._rng.choice(fields)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._map(getattr(message, field.name), field, 20_000)
        elif field.is_repeated:
            self._list(getattr(message, field.name), field, _LIST_LENGTH, _DEPTH_MAX - 1)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            self.blow_up(getattr(message, field.name))
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, "y" * (1 << 20))
        elif field.type == FieldDescriptor.TYPE_BYTES:
            setattr(message, field.name, b"\0" * (2 << 20))

    def _map(self, target: Any, field: FieldDescriptor, count: int | None = None) -> None:
        assert field.message_type is not None
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        for number in range(self._rng.randint(0, 3) if count is None else count):
            chosen = self.value(key) if count is None else f"{number}"
            if value.type == FieldDescriptor.TYPE_MESSAGE:
                self.fill(target[chosen], _DEPTH_MAX - 1)
            else:
                target[chosen] = self.value(value)

    def _list(self, target: Any, field: FieldDescriptor, count: int, depth: int) -> None:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            # Of a long list all are as one of a few: it is made in moments, and they stand twice.
            for _ in range(min(count, 5)):
                self.fill(target.add(), depth + 1)
            if count > 5 and sum(one.ByteSize() for one in target) * count / 5 < MESSAGE_BYTES_MAX:
                target.extend([target[number % 5] for number in range(count - 5)])
            return
        values = [self.value(field) for _ in range(min(count, 5))]
        if count > 5:
            if field.type in _INT_BITS and self._rng.random() < 0.5:
                values = list(range(count))
            elif len(values[0] if isinstance(values[0], str | bytes) else b"12345678") * count < MESSAGE_BYTES_MAX:
                values = values * (count // 5)
        target.extend(values)

    def value(self, field: FieldDescriptor) -> Any:
        rng = self._rng
        match field.type:
            case FieldDescriptor.TYPE_STRING:
                return self._text(field.name)
            case FieldDescriptor.TYPE_BYTES:
                return self._bytes(field.name)
            case FieldDescriptor.TYPE_BOOL:
                return rng.random() < 0.5
            case FieldDescriptor.TYPE_ENUM:
                unknown = (99, -1, (1 << 31) - 1) if self._hostile else ()
                assert field.enum_type is not None
                return rng.choice([*(one.number for one in field.enum_type.values), *unknown])
            case FieldDescriptor.TYPE_DOUBLE:
                return rng.choice(_FLOATS)
            case FieldDescriptor.TYPE_FLOAT:
                return rng.choice(_FLOATS[:6])
            case _:
                return self._int(field)

    def _int(self, field: FieldDescriptor) -> int:
        low, high = _INT_BITS[field.type]
        if self._hostile and self._rng.random() < 0.6:
            return max(low, min(high, self._rng.choice(_EXTREMES)))
        if "node" in field.name or field.name in ("replicas", "leader"):
            return self._rng.choice(self._known.node_ids)
        return self._rng.choice((0, 0, 1, 1, 2, 5, 100))

    def _text(self, name: str) -> str:
        rng, known = self._rng, self._known
        if self._hostile and rng.random() < 0.5:
            return rng.choice(_TEXTS)
        if "topic" in name or name == "name":
            return rng.choice([*known.topics, *known.config_names])
        if "group" in name:
            return rng.choice(known.groups)
        if "cluster" in name:
            return known.cluster_id
        if name == "key":
            return rng.choice(known.config_names)
        if name == "method":
            return rng.choice(("CreateTopics", "AlterConfigs", "DeleteTopics", "ElectLeaders"))
        if name == "pattern":
            return rng.choice((".*", "fuzz-[0-9]", "("))
        return rng.choice(("fuzz", "1", "m-1", "compact", "range", "127.0.0.1:1"))

    def _bytes(self, name: str) -> bytes:
        rng = self._rng
        if "topic" in name:
            return rng.choice([*self._known.topics.values(), rng.randbytes(16)])
        if name == "producer_token":
            return token(rng, self._known)
        if "batch" in name or "records" in name or rng.random() < 0.2:
            return batches(rng)
        if name.endswith(("id", "ids")):
            return rng.randbytes(rng.choice((0, 15, 16, 16, 16, 17)))
        return rng.choice((b"", b"\0", b"\xff" * 16, rng.randbytes(rng.randint(0, 300))))


def _chosen(rng: random.Random, descriptor: Descriptor) -> Iterator[FieldDescriptor]:
    """Most of the fields; of a oneof, one."""
    taken = {oneof.name: rng.choice(oneof.fields).name for oneof in descriptor.oneofs}
    for field in descriptor.fields:
        oneof = field.containing_oneof
        if oneof is not None and taken[oneof.name] != field.name:
            continue
        if rng.random() < 0.75:
            yield field
