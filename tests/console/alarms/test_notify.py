"""Notifications on real sockets of loopback: what arrives, what is retried, what is never shown."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from collections.abc import Iterator, Mapping
from email import message_from_string, policy
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")
pytest.importorskip("aiosmtplib", reason="streamlog[console] is not installed")
pytest.importorskip("httpx", reason="streamlog[console] is not installed")

from streamlog.console.alarms.channels import Channel, EmailChannel, HttpChannel
from streamlog.console.alarms.deliveries import DeliveryStatus, NoticeDelivery
from streamlog.console.alarms.messages import LISTED_MAX, NAMED_MAX, Notice, NoticeAlarm, NoticeStatus
from streamlog.console.alarms.notify.notifier import QUEUE_MAX, TRIES_MAX, Notifier
from streamlog.console.alarms.notify.requests import WECOM_BYTES_MAX, dingtalk, slack, wecom
from streamlog.console.alarms.notify.secrets import SECRET_BYTES_MAX, SecretError, resolved
from streamlog.console.alarms.notify.senders import DeliveryError, send
from tests.console.alarms.receivers import MailReceiver, WebhookReceiver, webhook_receiver


def alarm(summary: str = "Node 2 (h:9092) is fenced.") -> NoticeAlarm:
    return NoticeAlarm(
        alarm_id="node-down/node 2/1",
        rule="node-down",
        kind="node_down",
        severity="critical",
        subject="node 2",
        summary=summary,
        value=1,
        above=0,
        remedy="Start it.",
        began_at_s=0,
        fired_at_s=30,
    )


def notice(*alarms: NoticeAlarm, status: NoticeStatus = NoticeStatus.FIRING) -> Notice:
    shown = alarms or (alarm(),)
    return Notice(notice_id="n1", status=status, cluster="c", at_s=60, alarms=shown, alarm_count=len(shown))


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookReceiver]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with webhook_receiver() as found:
        yield found


def channel(hook: WebhookReceiver, kind: str = "webhook", **more: Any) -> HttpChannel:
    return HttpChannel(name="c", type=kind, url=f"{hook.url}/h", **more)


async def test_the_generic_webhook_is_signed(hook: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "s3cret")
    headers = {"Authorization": "Bearer ${env:HOOK_SECRET}"}
    await send(channel(hook, secret="${env:HOOK_SECRET}", headers=headers), notice())
    taken = hook.taken[0]
    assert taken.headers["X-Streamlog-Signature"] == (
        "sha256=" + hmac.new(b"s3cret", taken.body, hashlib.sha256).hexdigest()
    )
    assert taken.headers["Authorization"] == "Bearer s3cret"
    assert taken.headers["Idempotency-Key"] == "n1"
    body = taken.json
    assert (body["version"], body["status"], body["count"], body["cluster"]) == (1, "firing", 1, "c")
    assert body["alarms"][0]["fired_at"] == "1970-01-01T00:00:30.000Z"
    assert body["alarms"][0]["subject"] == "node 2"


async def test_the_url_of_a_robot_is_signed_as_dingtalk_asks(
    hook: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBOT", "SECxyz")
    hook.answers = [(200, b'{"errcode": 0, "errmsg": "ok"}')]
    await send(channel(hook, "dingtalk", secret="${env:ROBOT}"), notice())
    query = parse_qs(urlsplit(hook.taken[0].path).query)
    signed = hmac.new(b"SECxyz", f"{query['timestamp'][0]}\nSECxyz".encode(), hashlib.sha256).digest()
    assert base64.b64decode(query["sign"][0]) == signed
    assert hook.taken[0].json["msgtype"] == "markdown"
    assert "access_token=1&timestamp=5" in dingtalk(notice(), "https://a/?access_token=1", "s", 5).url


@pytest.mark.parametrize("kind", ["dingtalk", "wecom"])
async def test_a_robot_that_answers_200_with_an_error_has_not_taken_it(hook: WebhookReceiver, kind: str) -> None:
    hook.answers = [(200, b'{"errcode": 310000, "errmsg": "sign not match"}')]
    with pytest.raises(DeliveryError, match="errcode 310000: sign not match"):
        await send(channel(hook, kind), notice())
    hook.answers = [(200, b"<html>")]
    with pytest.raises(DeliveryError, match="not the one of a robot"):
        await send(channel(hook, kind), notice())


def test_names_of_others_are_no_markup() -> None:
    hostile = notice(alarm("Group <!channel> *b* [x](http://evil) `y` is behind."))
    text = msgspec.json.decode(slack(hostile, "u").body)["text"]
    assert "&lt;!channel&gt;" in text
    assert "<!channel>" not in text
    content = msgspec.json.decode(wecom(hostile, "u").body)["markdown"]["content"]
    assert r"\[x\]\(http://evil\)" in content
    assert r"\<\!channel\>" in content


def test_what_is_sent_is_bounded() -> None:
    many = notice(*(alarm("数" * 300) for _ in range(LISTED_MAX)))
    content = msgspec.json.decode(wecom(many, "u").body)["markdown"]["content"]
    assert len(content.encode()) <= WECOM_BYTES_MAX
    assert many.lines[-1] == f"and {LISTED_MAX - NAMED_MAX} more"


@pytest.mark.parametrize(
    ("status", "permanent"), [(500, False), (503, False), (429, False), (408, False), (404, True), (301, True)]
)
async def test_a_status_is_an_error_and_says_whether_it_is_permanent(
    hook: WebhookReceiver, status: int, permanent: bool
) -> None:
    hook.answers = [(status, b"no")]
    with pytest.raises(DeliveryError, match=f"HTTP status {status}") as caught:
        await send(channel(hook), notice())
    assert caught.value.permanent is permanent


async def test_reasons_have_no_secret(hook: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", "http://127.0.0.1:1/s3cret")
    for url in ("${env:URL}", "${env:MISSING}/s3cret", "http://127.0.0.1:1/s3cret", "${env:URL}\x00", "${env:URL"):
        with pytest.raises(DeliveryError) as caught:
            await send(HttpChannel(name="c", type="webhook", url=url), notice())
        assert "s3cret" not in str(caught.value)
    with pytest.raises(DeliveryError, match="environment variable MISSING is not set"):
        await send(HttpChannel(name="c", type="webhook", url="${env:MISSING}"), notice())


def test_secrets_are_read_from_environment_and_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    (tmp_path / "token").chmod(0o600)
    assert resolved(f"a ${{env:X}} ${{file:{tmp_path}/token}}", {"X": "1"}) == "a 1 abc"
    (tmp_path / "large").write_text("x" * (SECRET_BYTES_MAX + 1))
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "lines").write_text("a\r\nb")
    for name in ("large", "binary", "lines"):
        (tmp_path / name).chmod(0o600)
    (tmp_path / "open").write_text("abc")
    (tmp_path / "open").chmod(0o640)
    os.mkfifo(tmp_path / "fifo")
    for name, reason in (
        ("none", "cannot be read"),
        ("large", "larger than"),
        ("fifo", "not a regular file"),
        ("binary", "UTF-8"),
        ("lines", "printable"),
        ("open", "other users can read .*: chmod 600"),
    ):
        with pytest.raises(SecretError, match=reason):
            resolved(f"${{file:{tmp_path}/{name}}}", {})


def mailed(port: int, **more: Any) -> EmailChannel:
    to = ("ops@example.org", "b@example.org")
    return EmailChannel(name="m", server=f"127.0.0.1:{port}", sender="s@example.org", to=to, tls="none", **more)


async def test_a_mail_arrives() -> None:
    receiver = MailReceiver()
    async with await receiver.start():
        await send(mailed(receiver.port), notice(alarm("Group 数\nBcc: x@y is behind.")))
    recipients, text = receiver.mails[0]
    found = message_from_string(text, policy=policy.default)
    assert recipients == ["ops@example.org", "b@example.org"]
    assert found["Subject"] == "[FIRING] node-down on c"
    assert found["Bcc"] is None
    assert found["Auto-Submitted"] == "auto-generated"


@pytest.mark.parametrize(("refusal", "permanent"), [("451 later", False), ("550 no", True)])
async def test_a_mail_server_that_refuses(refusal: str, permanent: bool) -> None:
    receiver = MailReceiver(refusal=refusal)
    async with await receiver.start():
        with pytest.raises(DeliveryError, match=refusal[:3]) as caught:
            await send(mailed(receiver.port), notice())
    assert caught.value.permanent is permanent


async def test_no_mail_server_is_a_reason() -> None:
    with pytest.raises(DeliveryError, match="not sent"):
        await send(mailed(1), notice())


class Deliveries:
    """Channels whose sending fails as it is scripted."""

    def __init__(self, *failures: DeliveryError | Exception | None) -> None:
        self.failures = list(failures)
        self.sent: list[tuple[str, str]] = []
        self.pauses: list[float] = []
        self.recorded: list[NoticeDelivery] = []
        self.blocked: asyncio.Event | None = None
        self.sent_by_a = asyncio.Event()
        self.notifier = Notifier(self.channels, self.record, sending=self.send, pause=self.pause)

    def channels(self) -> Mapping[str, Channel]:
        return {name: HttpChannel(name=name, type="webhook", url="http://a") for name in ("a", "b")}

    async def send(self, channel: Channel, what: Notice) -> None:
        self.sent.append((channel.name, what.notice_id))
        if channel.name == "a":
            self.sent_by_a.set()
        if channel.name == "b" and self.blocked is not None:
            await self.blocked.wait()
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def record(self, delivery: NoticeDelivery) -> None:
        self.recorded.append(delivery)

    async def put(self, *notices: tuple[str, str]) -> None:
        await self.notifier.put(
            NoticeDelivery(
                delivery_id=name,
                channel=channel,
                notice=msgspec.structs.replace(notice(), notice_id=name),
                created_at_s=0,
            )
            for channel, name in notices
        )


async def test_it_is_retried_in_order_with_growing_pauses() -> None:
    found = Deliveries(DeliveryError("x"), DeliveryError("x"), ValueError("a defect"))
    await found.put(("a", "1"), ("a", "2"))
    await found.notifier.wait_until_empty()
    assert found.sent == [("a", "1")] * 4 + [("a", "2")]
    assert found.pauses == [1, 2, 4]
    assert [(one.delivery_id, one.status, one.tries) for one in found.recorded[-2:]] == [
        ("1", DeliveryStatus.DELIVERED, 4),
        ("2", DeliveryStatus.DELIVERED, 1),
    ]


async def test_it_is_given_up() -> None:
    found = Deliveries(*[DeliveryError("x")] * TRIES_MAX)
    await found.put(("a", "1"), ("a", "2"))
    await found.notifier.wait_until_empty()
    ended = [one for one in found.recorded if one.status is DeliveryStatus.FAILED]
    assert [(one.delivery_id, one.tries, one.failure) for one in ended] == [("1", TRIES_MAX, "x")]
    assert max(found.pauses) <= 300
    permanent = Deliveries(DeliveryError("no", permanent=True))
    await permanent.put(("a", "1"), ("none", "2"))
    await permanent.notifier.wait_until_empty()
    assert permanent.pauses == []
    assert {one.failure for one in permanent.recorded} == {"no", "there is no channel none any more"}


async def test_a_channel_that_hangs_delays_itself_alone_and_its_queue_is_bounded() -> None:
    found = Deliveries()
    found.blocked = asyncio.Event()
    await found.put(*(("b", str(number)) for number in range(QUEUE_MAX + 2)), ("a", "quick"))
    await found.sent_by_a.wait()
    assert found.notifier.queued <= QUEUE_MAX + 1
    assert [one.delivery_id for one in found.recorded if one.status is DeliveryStatus.FAILED] == ["1", "2"]
    found.blocked.set()
    await found.notifier.wait_until_empty()
    assert [name for channel, name in found.sent if channel == "b"] == [
        "0",
        *(str(number) for number in range(3, QUEUE_MAX + 2)),
    ]
