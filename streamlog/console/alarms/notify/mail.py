"""A notice as a mail, by SMTP."""

from __future__ import annotations

from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid

from streamlog.console.alarms.channels import EmailChannel
from streamlog.console.alarms.messages import Notice, iso


def mail(notice: Notice, channel: EmailChannel) -> EmailMessage:
    found = EmailMessage()
    found["Subject"] = "".join(char if char.isprintable() else " " for char in notice.title)[:200]
    found["From"] = channel.sender
    found["To"] = ", ".join(channel.to)
    found["Date"] = format_datetime(datetime.fromtimestamp(notice.at_s, UTC))
    found["Message-ID"] = make_msgid(domain=channel.sender.rpartition("@")[2])
    found["X-Streamlog-Notice"] = notice.notice_id
    found["Auto-Submitted"] = "auto-generated"
    found.set_content("\n\n".join([*notice.lines, f"{iso(notice.at_s)}, cluster {notice.cluster}"]) + "\n")
    return found
