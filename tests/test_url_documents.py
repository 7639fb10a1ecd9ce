"""Documents of other programs: how long an answer may take. Their content is tested where it is used."""

from __future__ import annotations

import errno

import pytest

from streamlog.url_documents import UrlDocuments
from tests.support.dripping import dripping


@pytest.mark.parametrize(
    "begin",
    [b"HTTP/1.1 200 OK\r\nX-Endless: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"],
    ids=["headers", "content"],
)
def test_an_answer_without_end_is_read_until_the_deadline(begin: bytes) -> None:
    with dripping(begin) as url, pytest.raises(OSError, match=r"did not answer within 0.5 s") as caught:
        UrlDocuments(0.5).read(url, 8_000)
    assert caught.value.errno == errno.ETIMEDOUT
