"""A notice -> the HTTP request of each kind of channel. Pure: secrets are resolved already.

Names of groups and topics are others' text: escaped where the channel renders markup.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote_plus

from msgspec import Struct, field

from streamlog.console.alarms.messages import Notice, NoticeStatus

SIGNATURE_HEADER: Final = "X-Streamlog-Signature"
WECOM_BYTES_MAX: Final = 4_096
DINGTALK_BYTES_MAX: Final = 20_000
SLACK_CHARS_MAX: Final = 12_000
_SIGNS: Final = {NoticeStatus.FIRING: ":red_circle:", NoticeStatus.RESOLVED: ":large_green_circle:"}


class WebRequest(Struct, frozen=True):
    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def webhook(notice: Notice, url: str, secret: str, headers: Mapping[str, str]) -> WebRequest:
    """`secret` signs the body: sha256=<HMAC-SHA256 in hex>."""
    body = _json(notice.to_json())
    found = {"Content-Type": "application/json", "Idempotency-Key": notice.notice_id, **headers}
    if secret:
        found[SIGNATURE_HEADER] = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    return WebRequest(url, body, found)


def slack(notice: Notice, url: str) -> WebRequest:
    text = f"{_SIGNS.get(notice.status, '')} *{_entities(notice.title)}*".strip()
    text = "\n".join([text, *(f"• {_entities(line)}" for line in notice.lines)])
    return _post(url, {"text": text[:SLACK_CHARS_MAX]})


def dingtalk(notice: Notice, url: str, secret: str, now_ms: int) -> WebRequest:
    """Signed where the robot has a secret: HMAC-SHA256 of "timestamp\\nsecret", in base64, in the query."""
    if secret:
        to_sign = f"{now_ms}\n{secret}".encode()
        sign = base64.b64encode(hmac.new(secret.encode(), to_sign, hashlib.sha256).digest())
        url = f"{url}{'&' if '?' in url else '?'}timestamp={now_ms}&sign={quote_plus(sign)}"
    lines = [f"### {_markdown(notice.title)}", *(f"- {_markdown(line)}" for line in notice.lines)]
    text = _cut("\n".join(lines), DINGTALK_BYTES_MAX)
    return _post(url, {"msgtype": "markdown", "markdown": {"title": notice.title[:100], "text": text}})


def wecom(notice: Notice, url: str) -> WebRequest:
    lines = [f"### {_markdown(notice.title)}", *(f"> {_markdown(line)}" for line in notice.lines)]
    return _post(url, {"msgtype": "markdown", "markdown": {"content": _cut("\n".join(lines), WECOM_BYTES_MAX)}})


def failure_of(kind: str, body: bytes) -> str:
    """DingTalk and WeCom answer 200 with an error code. Empty: accepted."""
    if kind not in ("dingtalk", "wecom"):
        return ""
    try:
        answer = json.loads(body)
        code, reason = answer.get("errcode"), str(answer.get("errmsg", ""))
    except (ValueError, AttributeError):
        return "the answer is not the one of a robot"
    return "" if code == 0 else f"errcode {code}: {reason[:200]}"


def _post(url: str, body: Mapping[str, Any]) -> WebRequest:
    return WebRequest(url, _json(body), {"Content-Type": "application/json"})


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def _entities(text: str) -> str:
    """As Slack's documentation: these three."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _markdown(text: str) -> str:
    return "".join(f"\\{char}" if char in "\\`*_[]()#<>!|" else char for char in text)


def _cut(text: str, bytes_max: int) -> str:
    data = text.encode()
    return text if len(data) <= bytes_max else data[: bytes_max - 4].decode(errors="ignore") + " …"


Build = Callable[[Notice, str, str, Mapping[str, str], int], WebRequest]
REQUESTS: Final[Mapping[str, Build]] = {
    "webhook": lambda notice, url, secret, headers, _: webhook(notice, url, secret, headers),
    "slack": lambda notice, url, _, __, ___: slack(notice, url),
    "dingtalk": lambda notice, url, secret, _, now_ms: dingtalk(notice, url, secret, now_ms),
    "wecom": lambda notice, url, _, __, ___: wecom(notice, url),
}
