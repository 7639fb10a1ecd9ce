"""A schema registry over HTTP on loopback, which a test scripts: subjects in memory, answers that fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class FakeRegistry:
    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []  # the id is the index + 1
        self.versions: dict[str, list[int]] = {}  # ids, by subject
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.failures: list[tuple[int, bytes]] = []  # the next answers instead
        self.encoding = ""  # of all answers
        self.url = ""

    def add(self, subject: str, schema: dict[str, Any]) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        ids = self.versions.setdefault(subject, [])
        if number not in ids:
            ids.append(number)
        return number

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            if not 0 < number <= len(self.schemas):
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            return 200, self.schemas[number - 1]
        subject = parts[1]
        if method == "POST":
            given = json.loads(body)
            schema = {key: given[key] for key in ("schema", "schemaType", "references") if key in given}
            if len(parts) == 3:
                return 200, {"id": self.add(subject, schema)}
            known = self.versions.get(subject, [])
            if schema not in self.schemas or self.schemas.index(schema) + 1 not in known:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            number = self.schemas.index(schema) + 1
            return 200, {"subject": subject, "id": number, "version": known.index(number) + 1, **schema}
        known = self.versions.get(subject, [])
        version = len(known) if parts[3] == "latest" else int(parts[3])
        if not 0 < version <= len(known):
            return 404, {"error_code": 40401, "message": f"Subject {subject!r} not found."}
        number = known[version - 1]
        return 200, {"subject": subject, "id": number, "version": version, **self.schemas[number - 1]}


@contextmanager
def serving() -> Iterator[FakeRegistry]:
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            registry.requests.append((self.command, self.path))
            registry.headers.append(dict(self.headers))
            if registry.failures:
                status, data = registry.failures.pop(0)
            else:
                status, found = registry.answer(self.command, self.path, body)
                data = json.dumps(found).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{registry.url}/schemas/ids/1")
            if registry.encoding:
                self.send_header("Content-Encoding", registry.encoding)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            try:
                self.wfile.write(data)
            except OSError:
                pass  # the client has read enough

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
