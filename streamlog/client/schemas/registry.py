"""A schema registry, by Confluent's HTTP API. Blocking; any number of threads and clients may share one.

    register    POST /subjects/SUBJECT/versions           the id of a schema; the registry checks compatibility
    look_up     POST /subjects/SUBJECT                    the id of one that is registered
    latest      GET  /subjects/SUBJECT/versions/latest
    by_id       GET  /schemas/ids/ID                      a schema never changes: cached, SCHEMAS_MAX at most
    referenced  GET  /subjects/SUBJECT/versions/VERSION   likewise

Several addresses are tried in turn. Errors: NetworkError (retriable) where none answers, or says that it is busy;
InvalidRequestError, with the registry's own text, where by its own code it does not have the schema or does not accept
it; SchemaRegistryError for any other answer. Answers are bounded in size, redirects not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

import httpx
import msgspec
from msgspec import Struct

from streamlog.errors import InvalidConfigError, InvalidRequestError, NetworkError, SchemaRegistryError, StreamlogError
from streamlog.ports.system import SystemClock

ANSWER_BYTES_MAX: Final = 8 << 20
SCHEMAS_MAX: Final = 10_000
_HOST: Final = re.compile(r"(\[[^\]]+\]|[^:\[\]]+)(:[0-9]*)?")
_DEPTH_MAX: Final = 32
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

T = TypeVar("T")
_Login = tuple[str, str] | None


class Reference(Struct, frozen=True):
    """To a schema of another subject, under the name by which the text refers to it."""

    name: str
    subject: str
    version: int


class RegistrySchema(Struct, frozen=True):
    text: str
    kind: str = "AVRO"  # AVRO, JSON, PROTOBUF
    references: tuple[Reference, ...] = ()


class NumberedSchema(Struct, frozen=True):
    schema_id: int
    schema: RegistrySchema


class _Answer(Struct):
    id: int = -1
    schema: str = ""
    schemaType: str = "AVRO"
    references: tuple[Reference, ...] = ()

    def as_schema(self) -> RegistrySchema:
        return RegistrySchema(self.schema, self.schemaType, self.references)


class _Refusal(Struct):
    message: str = ""
    error_code: int = 0

    def is_about_schema(self) -> bool:
        """It is incompatible, unknown or invalid; 404 alone is that of an address without a registry."""
        return self.error_code == 409 or self.error_code // 100 in (404, 409, 422)


class SchemaRegistry:
    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """`username` and `password`, or those that each URL has, or a bearer `token`. `ca_file`: certificates in
        PEM that sign the registry's. `timeout_s`: for an address to take the connection, to begin its answer, and to
        end it. InvalidConfigError.
        """
        given = [_split(part) for one in ([urls] if isinstance(urls, str) else urls) for part in one.split(",")]
        if not given:
            raise InvalidConfigError("no URL of a schema registry is given: give one", field="urls")
        of_all = None if username is None else (username, password or "")
        self._logins: Final = [(address, of_all or login) for address, login in given]
        headers = {"Accept": _TYPE, "Accept-Encoding": "identity", "Content-Type": _TYPE}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._timeout_s: Final = timeout_s
        self._http: Final = httpx.Client(
            headers=headers,
            verify=True if ca_file is None else httpx.create_ssl_context(verify=ca_file),
            timeout=timeout_s,
            follow_redirects=False,
        )
        self._by_id: dict[int, RegistrySchema] = {}
        self._by_version: dict[tuple[str, int], RegistrySchema] = {}

    def close(self) -> None:
        """Idempotent."""
        self._http.close()

    def register(self, subject: str, schema: RegistrySchema) -> int:
        """Its id; the same where it is registered already."""
        return self._post(f"/subjects/{quote(subject, safe='')}/versions", schema)

    def look_up(self, subject: str, schema: RegistrySchema) -> int:
        """The id of a schema that is registered."""
        return self._post(f"/subjects/{quote(subject, safe='')}", schema)

    def latest(self, subject: str) -> NumberedSchema:
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        answer = self._get(path)
        return NumberedSchema(_known("GET", path, answer), answer.as_schema())

    def version_of(self, subject: str, schema: RegistrySchema) -> int:
        """The version under which it is registered."""
        return self._ask("POST", f"/subjects/{quote(subject, safe='')}", _body(schema), _Version).version

    def by_id(self, schema_id: int) -> RegistrySchema:
        found = self._by_id.get(schema_id)
        if found is None:
            found = self._get(f"/schemas/ids/{schema_id}").as_schema()
            _keep(self._by_id, schema_id, found)
        return found

    def referenced(self, references: Iterable[Reference]) -> dict[str, RegistrySchema]:
        """The schemas that these name, and those that they name in turn, before them; by name."""
        found: dict[str, RegistrySchema] = {}
        self._follow(references, found, _DEPTH_MAX)
        return found

    def _follow(self, references: Iterable[Reference], found: dict[str, RegistrySchema], depth: int) -> None:
        for one in references:
            if one.name in found:
                continue
            if depth == 0 or len(found) >= SCHEMAS_MAX:
                raise InvalidRequestError(f"the references of the schema nest too deeply, at {one.subject}")
            key = (one.subject, one.version)
            schema = self._by_version.get(key)
            if schema is None:
                schema = self._get(f"/subjects/{quote(one.subject, safe='')}/versions/{one.version}").as_schema()
                _keep(self._by_version, key, schema)
            self._follow(schema.references, found, depth - 1)
            found[one.name] = schema

    def _post(self, path: str, schema: RegistrySchema) -> int:
        return _known("POST", path, self._ask("POST", path, _body(schema), _Answer))

    def _get(self, path: str) -> _Answer:
        answer = self._ask("GET", path, None, _Answer)
        if not answer.schema:
            raise SchemaRegistryError(f"GET {path}: the answer is not a registry's: no schema")
        return answer

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, kind: type[T]) -> T:
        problem: StreamlogError | None = None
        for address, login in self._logins:
            try:
                status, data = self._answer(method, address + path, body, login)
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
                reason = str(error) or type(error).__name__
                problem = NetworkError(f"the schema registry {address} does not answer: {reason}")
                continue
            if status == 200:
                try:
                    return msgspec.json.decode(data, type=kind)
                except msgspec.DecodeError as error:
                    raise SchemaRegistryError(
                        f"{method} {address}{path}: the answer is not a registry's: {error}"
                    ) from None
            refusal = _refusal(data)
            reason = f", {refusal.error_code}: {refusal.message[:500]}" if refusal.message else ""
            text = f"{method} {address}{path}: status {status}{reason}"
            if status not in _BUSY:
                kind_of_error = InvalidRequestError if refusal.is_about_schema() else SchemaRegistryError
                raise kind_of_error(f"the schema registry refused {text}", limit=status)
            problem = NetworkError(f"the schema registry failed: {text}")
        assert problem is not None
        raise problem

    def _answer(self, method: str, url: str, body: Mapping[str, Any] | None, login: _Login) -> tuple[int, bytes]:
        content = None if body is None else msgspec.json.encode(body)
        with self._http.stream(method, url, content=content, auth=login) as response:
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise SchemaRegistryError(f"the answer of {method} {url} is compressed ({encoding[:20]!r}), unasked")
            parts, size, deadline_s = [], 0, SystemClock.monotonic() + self._timeout_s
            for part in response.iter_raw():
                parts.append(part)
                size += len(part)
                if SystemClock.monotonic() > deadline_s:  # the timeout of httpx is that of one read
                    raise httpx.ReadTimeout(f"its answer has no end after {self._timeout_s:g} s")
                if size > ANSWER_BYTES_MAX:
                    raise SchemaRegistryError(f"the answer of {method} {url} exceeds {ANSWER_BYTES_MAX} bytes")
            return response.status_code, b"".join(parts)


class _Version(Struct):
    version: int


def _split(url: str) -> tuple[str, _Login]:
    """The address, for requests and for messages, and the login in it. InvalidConfigError."""
    scheme, separator, rest = url.strip().rstrip("/").rpartition("://")
    authority, slash, path = rest.partition("/")
    login, at, host = authority.rpartition("@")
    if scheme not in ("http", "https"):
        raise InvalidConfigError(  # without the URL, of which any part may be that of a password
            "the URL of a schema registry must begin with http:// or https://: give http://HOST:PORT", field="urls"
        )
    if "@" in path or _HOST.fullmatch(host) is None:  # with '/' in the password, user and digits look like HOST:PORT
        raise InvalidConfigError(
            "the URL of a schema registry has no valid host and port: write '/' and '@' of a password, and '@' of a"
            " path, as %2F and %40",
            field="urls",
        )
    username, _, password = login.partition(":")
    return f"{scheme}{separator}{host}{slash}{path}", (unquote(username), unquote(password)) if at else None


def _known(method: str, path: str, answer: _Answer) -> int:
    """The id in an answer."""
    if not 0 <= answer.id < 1 << 32:
        raise SchemaRegistryError(f"{method} {path}: the answer is not a registry's: no valid id")
    return answer.id


def _body(schema: RegistrySchema) -> Mapping[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != "AVRO":
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = schema.references
    return body


def _keep(cache: dict[Any, RegistrySchema], key: object, schema: RegistrySchema) -> None:
    if len(cache) >= SCHEMAS_MAX:
        cache.clear()
    cache[key] = schema


def _refusal(data: bytes) -> _Refusal:
    try:
        return msgspec.json.decode(data, type=_Refusal)
    except msgspec.DecodeError:
        return _Refusal()
