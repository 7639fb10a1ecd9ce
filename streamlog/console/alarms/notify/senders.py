"""Sends one notice to one channel. Reasons of failures have no secret: no URL, no header, no answer of a login."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import aiosmtplib
import httpx

from streamlog.aio.timeouts import timeout
from streamlog.console.alarms.channels import Channel, EmailChannel, HttpChannel
from streamlog.console.alarms.messages import Notice
from streamlog.console.alarms.notify.mail import mail
from streamlog.console.alarms.notify.requests import REQUESTS, failure_of
from streamlog.console.alarms.notify.secrets import SecretError, resolved

SEND_TIMEOUT_S: Final = 15.0
ANSWER_BYTES_MAX: Final = 64 << 10
_PLAIN: Final = {"Accept-Encoding": "identity"}
"""64 KiB of gzip can be 64 MiB."""
_RETRIED: Final = (408, 425, 429)


class DeliveryError(Exception):
    """`permanent`: the same request would fail again."""

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


async def send(channel: Channel, notice: Notice) -> None:
    """DeliveryError."""
    try:
        async with timeout(SEND_TIMEOUT_S):
            if isinstance(channel, EmailChannel):
                await _send_mail(channel, notice)
            else:
                await _send_http(channel, notice)
    except TimeoutError:
        raise DeliveryError(f"no answer within {SEND_TIMEOUT_S:.0f} s") from None
    except SecretError as error:
        raise DeliveryError(str(error)) from None


async def _send_http(channel: HttpChannel, notice: Notice) -> None:
    url, secret, *values = await asyncio.to_thread(
        lambda: [resolved(text) for text in (channel.url, channel.secret, *channel.headers.values())]
    )
    headers = dict(zip(channel.headers, values, strict=True))
    try:
        request = REQUESTS[channel.type](notice, url, secret, headers, round(time.time() * 1000))
        async with (
            httpx.AsyncClient(timeout=SEND_TIMEOUT_S, follow_redirects=False) as client,
            client.stream("POST", request.url, content=request.body, headers={**_PLAIN, **request.headers}) as answer,
        ):
            body = b""
            async for part in answer.aiter_raw():
                body = (body + part)[:ANSWER_BYTES_MAX]
                if len(body) == ANSWER_BYTES_MAX:
                    break
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError):
        raise DeliveryError("its URL or a header is not valid", permanent=True) from None
    except httpx.ConnectError as error:
        raise DeliveryError(f"no connection: {_cause(error)}") from None
    except httpx.HTTPError as error:
        raise DeliveryError(f"the request failed: {type(error).__name__}") from None
    if not answer.is_success:
        status = answer.status_code
        permanent = status < 500 and status not in _RETRIED
        raise DeliveryError(f"HTTP status {status} {answer.reason_phrase[:80]}".strip(), permanent=permanent)
    if problem := failure_of(channel.type, body):
        raise DeliveryError(problem)


def _cause(error: BaseException) -> str:
    """The text of the operating system, which has an address and no path."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.strerror:
            return found.strerror
        found = found.__cause__ or found.__context__
    return "the host cannot be reached"


async def _send_mail(channel: EmailChannel, notice: Notice) -> None:
    password = await asyncio.to_thread(resolved, channel.password)
    host, _, port = channel.server.rpartition(":")
    try:
        await aiosmtplib.send(
            mail(notice, channel),
            hostname=host.strip("[]"),
            port=int(port),
            username=channel.username or None,
            password=password or None,
            use_tls=channel.tls == "tls",
            start_tls=channel.tls == "starttls",
            timeout=SEND_TIMEOUT_S,
        )
    except aiosmtplib.SMTPAuthenticationError as error:
        raise DeliveryError(f"the server refused the login: {error.code}", permanent=True) from None
    except aiosmtplib.SMTPRecipientsRefused:
        raise DeliveryError("the server refused all recipients", permanent=True) from None
    except aiosmtplib.SMTPResponseException as error:
        raise DeliveryError(
            f"the server answered {error.code}: {_plain(error.message)}", permanent=500 <= error.code < 600
        ) from None
    except (aiosmtplib.SMTPException, OSError) as error:
        raise DeliveryError(f"the mail was not sent: {_plain(str(error))}") from None


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:200]
