"""The registry's HTTP API: what is asked and cached, and what its failures become."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Callable, Iterator

import httpx
import msgspec
import pytest

from streamlog.client.consumer.consumer_records import ConsumerRecord
from streamlog.client.schemas import AvroDeserializer, Reference, RegistrySchema, SchemaRegistry
from streamlog.client.schemas import registry as registry_module
from streamlog.client.serialization.record_deserializers import Decoding, RecordDeserializers
from streamlog.errors import (
    DeserializationError,
    InvalidConfigError,
    InvalidRequestError,
    NetworkError,
    SchemaRegistryError,
    StreamlogError,
)
from streamlog.model import Offset
from tests.support.dripping import dripping

from .registry_server import FakeRegistry, serving

TEXT = '{"type": "string"}'
_NO_SCHEME = "^the URL of a schema registry must begin with http:// or https://: give"
_NO_HOST = "^the URL of a schema registry has no valid host and port: write '/' and '@' of a password"


@pytest.fixture
def served() -> Iterator[FakeRegistry]:
    with serving() as registry:
        yield registry


def test_a_schema_is_registered_and_asked_once(served: FakeRegistry) -> None:
    registry = SchemaRegistry(served.url)
    number = registry.register("a/b c-value", RegistrySchema(TEXT))
    assert served.requests == [("POST", "/subjects/a%2Fb%20c-value/versions")]
    assert registry.look_up("a/b c-value", RegistrySchema(TEXT)) == number
    assert registry.latest("a/b c-value").schema == RegistrySchema(TEXT)
    served.requests.clear()
    assert [registry.by_id(number) for _ in range(3)] == [RegistrySchema(TEXT)] * 3
    assert served.requests == [("GET", f"/schemas/ids/{number}")]
    assert served.headers[-1]["Accept"] == "application/vnd.schemaregistry.v1+json"


def test_references_are_followed_once_and_come_before_what_names_them(served: FakeRegistry) -> None:
    registry = SchemaRegistry(served.url)
    served.add("c", {"schema": "C"})
    served.add("b", {"schema": "B", "references": [{"name": "c", "subject": "c", "version": 1}]})
    served.add("a", {"schema": "A", "references": [{"name": "c", "subject": "c", "version": 1}]})
    wanted = [Reference("b", "b", 1), Reference("a", "a", 1)]
    for _ in range(2):
        assert [schema.text for schema in registry.referenced(wanted).values()] == ["C", "B", "A"]
    assert len(served.requests) == 3


def test_references_in_a_circle_end(served: FakeRegistry) -> None:
    for number in range(40):
        after = {"name": f"s{number + 1}", "subject": f"s{number + 1}", "version": 1}
        served.add(f"s{number}", {"schema": f"S{number}", "references": [after]})
    with pytest.raises(InvalidRequestError, match="nest too deeply"):
        SchemaRegistry(served.url).referenced([Reference("s0", "s0", 1)])


def test_an_answer_without_end_is_a_retriable_error() -> None:
    with (
        dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n") as url,
        pytest.raises(NetworkError, match=r"does not answer: its answer has no end after 0.5 s"),
    ):
        SchemaRegistry(url, timeout_s=0.5).by_id(1)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_registry_is_a_retriable_error(served: FakeRegistry, status: int) -> None:
    served.failures = [(status, b'{"error_code": 50002, "message": "leader is unknown"}')]
    registry = SchemaRegistry(served.url)
    with pytest.raises(NetworkError, match=f"status {status}, 50002: leader is unknown") as failed:
        registry.by_id(1)
    assert failed.value.retriable


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (409, b'{"error_code": 409, "message": "incompatible"}', "status 409, 409: incompatible"),
        (401, b"<html>", "status 401$"),
        (302, b"", "status 302$"),
        (200, b"<html>", "is not a registry's"),
        (200, b'{"id": "1"}', "is not a registry's"),
        (200, b'{"schema": "x"}', "is not a registry's: no valid id"),
        (200, b'{"id": 4294967296}', "is not a registry's: no valid id"),
    ],
)
def test_a_refusal_is_not_retriable(served: FakeRegistry, status: int, body: bytes, message: str) -> None:
    served.failures = [(status, body)]
    with pytest.raises(InvalidRequestError, match=message) as refused:
        SchemaRegistry(served.url).register("s", RegistrySchema(TEXT))
    assert not refused.value.retriable
    assert len(served.requests) == 1


def decoding(served: FakeRegistry) -> tuple[Decoding, RecordDeserializers]:
    """Of a record of schema 1, where such are skipped that cannot be decoded."""
    records = [ConsumerRecord("t", 0, Offset(0), 0, None, b"\0\0\0\0\1\2x", ())]
    deserializers = RecordDeserializers.of(None, AvroDeserializer(SchemaRegistry(served.url)), "skip")
    assert deserializers is not None
    return Decoding(deserializers, records), deserializers


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b'{"error_code": 40101, "message": "Unauthorized"}'),
        (403, b""),
        (404, b"<html>"),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
        (302, b""),
        (200, b"<html>"),
        (200, b'{"status": "ok"}'),
    ],
)
def test_a_refusal_that_is_not_about_a_record_skips_none(served: FakeRegistry, status: int, body: bytes) -> None:
    served.add("t-value", {"schema": TEXT})
    served.failures = [(status, body)]
    records, deserializers = decoding(served)
    with pytest.raises(
        DeserializationError, match=r"the next poll tries again; to step over it, seek to offset 1$"
    ) as failed:
        records.finish()
    assert failed.value.retriable
    records.finish()
    assert ([one.value for one in records.found], deserializers.skipped_count) == (["x"], 0)


def test_a_record_of_a_schema_that_the_registry_does_not_have_is_skipped(served: FakeRegistry) -> None:
    records, deserializers = decoding(served)
    records.finish()
    assert (records.found, deserializers.skipped_count) == ([], 1)


def test_an_answer_is_bounded(served: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "ANSWER_BYTES_MAX", 1000)
    served.failures = [(200, b'{"id": 1}' + b" " * 1000)]
    with pytest.raises(SchemaRegistryError, match="exceeds 1000 bytes"):
        SchemaRegistry(served.url).register("s", RegistrySchema(TEXT))
    served.add("t-value", {"schema": TEXT})
    served.failures = [(200, b" " * 1001)]
    records, deserializers = decoding(served)
    with pytest.raises(DeserializationError, match="exceeds 1000 bytes"):
        records.finish()
    assert deserializers.skipped_count == 0


def test_an_answer_is_not_unpacked(served: FakeRegistry) -> None:
    """What is unpacked may have a thousand times the size."""
    served.encoding = "gzip"
    served.failures = [(200, gzip.compress(b'{"schema": "\\"int\\""}'))]
    with pytest.raises(SchemaRegistryError, match=r"is compressed \('gzip'\), unasked"):
        SchemaRegistry(served.url).by_id(1)
    assert served.headers[0]["Accept-Encoding"] == "identity"


class Part(bytes):
    """Counts the bytes that are copied to append it."""

    copied = 0

    def __radd__(self, before: bytes) -> bytes:
        Part.copied += len(before) + len(self)
        return b"".join((before, self))


def test_the_parts_of_an_answer_are_joined_once(served: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '"int"' + " " * 20_000
    answer = msgspec.json.encode({"schema": text})
    parts = [Part(answer[at : at + 10]) for at in range(0, len(answer), 10)]
    served.failures = [(200, b"{}")]
    for method in ("iter_bytes", "iter_raw"):
        monkeypatch.setattr(httpx.Response, method, lambda response: iter(parts))
    assert SchemaRegistry(served.url).by_id(1).text == text
    assert Part.copied <= len(answer)


def test_addresses_are_tried_in_turn(served: FakeRegistry) -> None:
    registry = SchemaRegistry(f"http://127.0.0.1:1, {served.url}/")
    assert registry.register("s", RegistrySchema(TEXT)) == 1
    with pytest.raises(NetworkError, match=r"http://127.0.0.1:1 does not answer: .*refused"):
        SchemaRegistry("http://127.0.0.1:1").by_id(1)


@pytest.mark.parametrize("ask", [lambda one: one.by_id(1), lambda one: one.register("s", RegistrySchema(TEXT))])
def test_an_invalid_answer_is_not_that_of_an_address_that_does_not_answer(
    served: FakeRegistry, ask: Callable[[SchemaRegistry], object]
) -> None:
    served.failures = [(200, b"{}")]
    with pytest.raises(SchemaRegistryError, match=r"no schema|no valid id") as failed:
        ask(SchemaRegistry(f"http://127.0.0.1:1,{served.url}"))
    assert "127.0.0.1:1" not in failed.value.message.replace(served.url, "")


def test_credentials_are_sent(served: FakeRegistry) -> None:
    SchemaRegistry(served.url, username="anna", password="secret").register("s", RegistrySchema(TEXT))
    SchemaRegistry(served.url, token="t0ken").register("s", RegistrySchema(TEXT))
    assert [headers["Authorization"] for headers in served.headers] == ["Basic YW5uYTpzZWNyZXQ=", "Bearer t0ken"]


def test_a_login_in_the_url_is_sent_and_not_shown(served: FakeRegistry) -> None:
    with_login = served.url.replace("//", "//anna:se%40cr%2Fet@")
    registry = SchemaRegistry(with_login)
    registry.register("s", RegistrySchema(TEXT))
    assert served.headers[-1]["Authorization"] == f"Basic {b64encode(b'anna:se@cr/et').decode()}"
    for refusing in (registry, SchemaRegistry("http://anna:se%40cr%2Fet@127.0.0.1:1")):
        with pytest.raises(StreamlogError) as refused:
            refusing.by_id(9)
        assert "anna" not in str(refused.value)
        assert "http://127.0.0.1:" in str(refused.value)
    SchemaRegistry(with_login, username="bert").by_id(1)
    assert served.headers[-1]["Authorization"] == f"Basic {b64encode(b'bert:').decode()}"


def test_each_url_has_its_own_login(served: FakeRegistry) -> None:
    number = SchemaRegistry(served.url).register("s", RegistrySchema(TEXT))
    for login, sent in (("", None), ("bert:2@", f"Basic {b64encode(b'bert:2').decode()}")):
        SchemaRegistry(["http://anna:1@127.0.0.1:1", served.url.replace("//", f"//{login}")]).by_id(number)
        assert served.headers[-1].get("Authorization") == sent


def test_an_at_sign_in_the_path_is_encoded(served: FakeRegistry) -> None:
    with pytest.raises(StreamlogError):
        SchemaRegistry(f"{served.url}/a%40b").by_id(1)
    assert served.requests == [("GET", "/a%40b/schemas/ids/1")]
    assert "Authorization" not in served.headers[-1]


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        ("registry:8081", _NO_SCHEME),
        ("anna:secret@registry:8081", _NO_SCHEME),
        ("http:/anna:secret@registry:8081", _NO_SCHEME),
        ("https//anna:secret@registry/x", _NO_SCHEME),
        ("anna:pass/secret@registry:8081", _NO_SCHEME),
        ("", _NO_SCHEME),
        ("http://anna:123/secret@h", _NO_HOST),
        ("anna:secret/x@registry:8081", _NO_SCHEME),
        ("http://anna:pass/secret@h", _NO_HOST),
        ([], "no URL of a schema registry is given"),
    ],
)
def test_addresses_that_are_refused(urls: str | list[str], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message) as refused:
        SchemaRegistry(urls)
    assert "secret" not in str(refused.value)
