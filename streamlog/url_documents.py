"""Documents of other programs, by URL: the public keys of a token issuer, a token from its endpoint.

    https://...    the server is verified by the system's authorities (SSL_CERT_FILE of OpenSSL names others)
    http://...     of this machine only, which the settings check
    file:///...    a regular file

Answers are bounded in size and time, and redirects are not followed. Blocking: call it on a worker thread.

A socket's timeout is that of one read: a server that sends a byte now and then would be read without end. So each read
of an answer, of its headers too, gets what is left until one deadline.
"""

from __future__ import annotations

import base64
import errno
import functools
import http.client
import io
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import IO, Any, Final

from streamlog.regular_file import read_regular

TIMEOUT_S: Final = 10.0
"""Of a connection, of its TLS handshake, and of all until the end of the answer, if it is later."""


class UrlDocuments:
    """A port of a node (`ports.bundle.Documents`), and answers to forms."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s

    def read(self, url: str, bytes_max: int) -> bytes:
        """Blocks. OSError, whose text says what is wrong."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "file":
            return read_regular(urllib.parse.unquote(parts.path), bytes_max)[0]
        return self._answer(urllib.request.Request(url, headers={"Accept": "application/json"}), bytes_max)

    def post(self, url: str, form: Mapping[str, str], user: str, password: str, bytes_max: int) -> bytes:
        """Blocks. As `read`; the user and its password by HTTP Basic, form-encoded first (RFC 6749, 2.3.1)."""
        login = ":".join(urllib.parse.quote_plus(one) for one in (user, password))
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "Authorization": "Basic " + base64.b64encode(login.encode()).decode(),
        }
        data = urllib.parse.urlencode(form).encode()
        return self._answer(urllib.request.Request(url, data=data, headers=headers, method="POST"), bytes_max)

    def _answer(self, request: urllib.request.Request, bytes_max: int) -> bytes:
        context = ssl.create_default_context()
        deadline_s = time.monotonic() + self._timeout_s
        opener = urllib.request.build_opener(_Http(deadline_s), _Https(deadline_s, context=context), _NoRedirects())
        try:
            with opener.open(request, timeout=self._timeout_s) as answer:
                data: bytes = answer.read(bytes_max + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise OSError(errno.EPROTO, f"it answered with HTTP status {error.code}") from None
        except urllib.error.URLError as error:
            raise OSError(errno.EIO, f"it cannot be reached ({error.reason})") from None
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(errno.EPROTO, f"its answer cannot be read ({type(error).__name__})") from None
        except TimeoutError:
            raise OSError(errno.ETIMEDOUT, f"it did not answer within {self._timeout_s:g} s") from None
        if len(data) > bytes_max:
            raise OSError(errno.EFBIG, f"its answer has more than {bytes_max} bytes")
        return data


class _Deadline(urllib.request.AbstractHTTPHandler):
    def __init__(self, deadline_s: float, **given: Any) -> None:
        super().__init__(**given)
        self._deadline_s = deadline_s

    def do_open(self, http_class: Any, req: urllib.request.Request, **given: Any) -> http.client.HTTPResponse:
        def connection(host: str, **wanted: Any) -> http.client.HTTPConnection:
            made: http.client.HTTPConnection = http_class(host, **wanted)
            made.response_class = functools.partial(_response, self._deadline_s)  # type: ignore[assignment]
            return made

        return super().do_open(connection, req, **given)


class _Http(_Deadline, urllib.request.HTTPHandler):
    pass


class _Https(_Deadline, urllib.request.HTTPSHandler):
    pass


def _response(deadline_s: float, sock: socket.socket, **given: Any) -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(sock, **given)
    response.fp = io.BufferedReader(_Reads(sock, response.fp.detach(), deadline_s))
    return response


class _Reads(io.RawIOBase):
    """Of a socket, until a deadline. TimeoutError."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, deadline_s: float) -> None:
        self._sock = sock
        self._raw = raw
        self._deadline_s = deadline_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Any:
        return None  # the status is the answer
