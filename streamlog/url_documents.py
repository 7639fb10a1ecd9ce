"""Documents of other programs, by URL: the public keys of a token issuer, a token from its endpoint.

    https://...    the server is verified by the system's authorities (SSL_CERT_FILE of OpenSSL names others)
    http://...     of this machine only, which the settings check
    file:///...    a regular file

Answers are bounded in size and time, and redirects are not followed. Blocking: call it on a worker thread.
"""

from __future__ import annotations

import base64
import errno
import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import IO, Any, Final

from streamlog.regular_file import read_regular

TIMEOUT_S: Final = 10.0
"""Of one read or write."""


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
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects())
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


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Any:
        return None  # the status is the answer
