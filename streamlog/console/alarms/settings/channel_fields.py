"""A [channels.NAME] of the file -> `Channel`. Pure."""

from __future__ import annotations

import re
from typing import Final

from streamlog.console.alarms.channels import HTTP_TYPES, Channel, EmailChannel, HttpChannel
from streamlog.console.alarms.notify.secrets import REFERENCE
from streamlog.console.alarms.settings.fields import FieldProblem, Fields, check_url

HEADERS_MAX: Final = 20
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_ADDRESS: Final = re.compile(r"[^@\s<>,;\"]{1,64}@[^@\s<>,;\"]{1,255}")


def read_channel(name: str, fields: Fields) -> Channel:
    """FieldProblem."""
    kind = fields.choice("type", [*HTTP_TYPES, "email"])
    return _email(name, fields) if kind == "email" else _http(name, kind, fields)


def _http(name: str, kind: str, fields: Fields) -> HttpChannel:
    url = fields.text("url")
    if not REFERENCE.search(url):
        check_url("url", url)
    if kind not in ("webhook", "dingtalk") and "secret" in fields:
        raise FieldProblem("secret", f"{kind} has none: its URL is secret")
    if kind != "webhook" and "headers" in fields:
        raise FieldProblem("headers", f"{kind} has none")
    headers = fields.mapping("headers")
    if len(headers) > HEADERS_MAX:
        raise FieldProblem("headers", f"must have at most {HEADERS_MAX} entries")
    for header in headers:
        if not _HEADER.fullmatch(header):
            raise FieldProblem("headers", f"{header[:70]!r} is not the name of a header")
    return HttpChannel(
        name=name,
        type=kind,
        url=url,
        secret=_reference("secret", fields),
        headers=headers,
        send_resolved=fields.boolean("send_resolved", True),
    )


def _email(name: str, fields: Fields) -> EmailChannel:
    server = fields.text("server")
    host, _, port = server.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port[:6]) <= 65_535:
        raise FieldProblem("server", f"{server[:80]!r} must be HOST:PORT, such as smtp.example.org:587")
    sender, to = fields.text("from"), fields.texts("to")
    for field_name, address in (("from", sender), *(("to", one) for one in to)):
        if not _ADDRESS.fullmatch(address):
            raise FieldProblem(field_name, f"{address[:80]!r} is not a mail address")
    tls = fields.choice("tls", ("starttls", "tls", "none"), "starttls")
    username, password = fields.text("username", ""), _reference("password", fields)
    if bool(username) != bool(password):
        raise FieldProblem("username", "username and password must be given together")
    if password and tls == "none":
        raise FieldProblem("tls", "a password is not sent without TLS: give starttls or tls")
    return EmailChannel(
        name=name,
        server=server,
        sender=sender,
        to=to,
        tls=tls,
        username=username,
        password=password,
        send_resolved=fields.boolean("send_resolved", True),
    )


def _reference(name: str, fields: Fields) -> str:
    """Secrets are not in the file, so that it can be versioned."""
    found = fields.text(name, "")
    if found and not REFERENCE.fullmatch(found):
        raise FieldProblem(name, "must be a reference, ${env:NAME} or ${file:/path}: this file may be versioned")
    return found
