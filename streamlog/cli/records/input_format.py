"""Lines of standard input as records, with the properties of Kafka's console producer. Pure.

    parse.key=true, key.separator=<TAB>          KEY<TAB>VALUE
    parse.headers=true, headers.delimiter=<TAB>  NAME:VALUE,NAME:VALUE<TAB>...   before the key
    headers.separator=, headers.key.separator=:
    null.marker=TEXT                             a key, value or header's value of this text is null
    ignore.error=true                            a line without its separator is a value, a header without its colon a
                                                 name with a null value, an empty header none

A line ends with LF or CR LF; the last one may have no end. An empty line is a record with an empty value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from streamlog.errors import InvalidRecordError, InvalidRequestError, MessageTooLargeError
from streamlog.records import Headers

_NAMES: Final = (
    "parse.key",
    "key.separator",
    "parse.headers",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
    "null.marker",
    "ignore.error",
)


class InputFormat(Struct, frozen=True, kw_only=True):
    parse_key: bool = False
    key_separator: bytes = b"\t"
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    ignore_error: bool = False

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> InputFormat:
        """InvalidRequestError for an unknown name or an invalid value."""
        for name in properties:
            if name not in _NAMES:
                raise InvalidRequestError(
                    f"{name} is not an input property: the properties are {', '.join(_NAMES)}",
                    field=name,
                    limit=_NAMES,
                )
        marker = properties.get("null.marker")
        return cls(
            parse_key=boolean(properties, "parse.key"),
            key_separator=separator(properties, "key.separator", "\t"),
            parse_headers=boolean(properties, "parse.headers"),
            headers_delimiter=separator(properties, "headers.delimiter", "\t"),
            headers_separator=separator(properties, "headers.separator", ","),
            headers_key_separator=separator(properties, "headers.key.separator", ":"),
            null_marker=None if marker is None else marker.encode(),
            ignore_error=boolean(properties, "ignore.error"),
        )


class InputRecord(Struct, frozen=True):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class LineSplitter:
    """Splits chunks of bytes into lines. The length of a line is limited, since it becomes one record."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rest = b""
        self._count = 0  # of lines given
        self.problem: MessageTooLargeError | None = None  # the line after those given is too long

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines completed by `chunk`; where one is too long, those before it, and `problem` is set."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        if max(map(len, (*whole, self._rest))) > self._bytes_max:
            good = next(at for at, line in enumerate((*whole, self._rest)) if len(line) > self._bytes_max)
            self.problem = MessageTooLargeError(
                f"Line {self._count + good + 1} exceeds max.request.size ({self._bytes_max:,} bytes)",
                field="line",
                limit=self._bytes_max,
            )
            whole, self._rest = whole[:good], b""
        self._count += len(whole)
        return [line[:-1] if line.endswith(b"\r") else line for line in whole]

    def end(self) -> list[bytes]:
        """The last line, if it has no end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class Parser:
    """Parses lines, and counts them for error messages."""

    def __init__(self, form: InputFormat) -> None:
        self._form = form
        self._line = 0
        self.problem: InvalidRecordError | None = None

    def records(self, lines: list[bytes]) -> list[InputRecord]:
        """Up to a line without its separators: then `problem` is set."""
        found = []
        for line in lines:
            self._line += 1
            try:
                found.append(self._record(line))
            except InvalidRecordError as problem:
                self.problem = problem
                break
        return found

    def _record(self, line: bytes) -> InputRecord:
        form = self._form
        headers: Headers = ()
        key = None
        if form.parse_headers:
            text, found, rest = line.partition(form.headers_delimiter)
            if found:
                headers, line = self._headers(text), rest
            else:
                self._lacks("headers", form.headers_delimiter)
        if form.parse_key:
            text, found, rest = line.partition(form.key_separator)
            if found:
                key, line = self._or_null(text), rest
            else:
                self._lacks("key", form.key_separator)
        return InputRecord(key, self._or_null(line), headers)

    def _headers(self, text: bytes) -> Headers:
        if not text:
            return ()
        found = []
        for pair in text.split(self._form.headers_separator):
            name, colon, value = pair.partition(self._form.headers_key_separator)
            if not colon:
                self._lacks("value of a header", self._form.headers_key_separator)
                if not pair:
                    continue
            found.append((name.decode("utf-8", "surrogateescape"), self._or_null(value) if colon else None))
        return tuple(found)

    def _or_null(self, text: bytes) -> bytes | None:
        return None if text == self._form.null_marker else text

    def _lacks(self, what: str, wanted: bytes) -> None:
        if not self._form.ignore_error:
            raise InvalidRecordError(
                f"line {self._line} has no {what}: separator {wanted.decode(errors='replace')!r} is missing; give "
                "another separator with --property, or --property ignore.error=true"
            )


def boolean(properties: Mapping[str, str], name: str) -> bool:
    """False if not given."""
    text = properties.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidRequestError(f"{name}={text!r}: must be true or false", field=name, limit="true, false")
    return text == "true"


def separator(properties: Mapping[str, str], name: str, default: str) -> bytes:
    r"""`\t` is a tab, `\n` a newline; the characters themselves are accepted too."""
    text = properties.get(name, default)
    found = text.replace("\\t", "\t").replace("\\n", "\n")
    if not found:
        raise InvalidRequestError(f"{name} must not be empty", field=name, limit=1)
    return found.encode()
