"""Servers on loopback that take notifications: HTTP and SMTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct, field


class TakenRequest(Struct):
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class WebhookReceiver:
    """Answers with `answers` in order, then with the last one."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.answers: list[tuple[int, bytes]] = [(200, b"ok")]
        self.taken: list[TakenRequest] = []
        self._arrived = threading.Condition()

    def take(self, request: TakenRequest) -> tuple[int, bytes]:
        with self._arrived:
            self.taken.append(request)
            self._arrived.notify_all()
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def wait_for(self, count: int, timeout_s: float) -> list[TakenRequest]:
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.taken) >= count, timeout_s), f"{len(self.taken)} of {count}"
            return list(self.taken)


@contextmanager
def webhook_receiver() -> Iterator[WebhookReceiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, answer = receiver.take(TakenRequest(self.path, dict(self.headers), body))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = WebhookReceiver(server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class MailReceiver(Struct):
    """A server of SMTP without extensions. `refusal`: its answer to the sender; empty: it takes the mail."""

    port: int = 0
    mails: list[tuple[list[str], str]] = field(default_factory=list)
    refusal: str = ""

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        recipients: list[str] = []
        writer.write(b"220 loopback\r\n")
        while line := (await reader.readline()).decode().strip():
            verb = line[:4].upper()
            answer = "250 ok"
            if verb == "MAIL" and self.refusal:
                answer = self.refusal
            elif verb == "RCPT":
                recipients.append(line.partition("<")[2].rstrip(">"))
            elif verb == "DATA":
                writer.write(b"354 go on\r\n")
                text = (await reader.readuntil(b"\r\n.\r\n")).decode()
                self.mails.append((recipients, text))
            elif verb == "QUIT":
                writer.write(b"221 bye\r\n")
                break
            writer.write(answer.encode() + b"\r\n")
        writer.close()
