"""What a request of JSON costs before it is refused."""

from __future__ import annotations

import pytest

from streamlog.daemon.http.api.json_messages import checked_object
from tests.support.counted_text import CountedText


def test_a_field_that_stands_twice_among_many_is_found_in_one_pass() -> None:
    count = 2_000
    pairs: list[tuple[str, object]] = [(CountedText(number), 0) for number in range(count)]
    CountedText.compared = 0
    with pytest.raises(ValueError, match=f"'{count - 1}' stands twice"):
        checked_object([*pairs, (CountedText(count - 1), 0)])
    assert CountedText.compared < 10 * count  # a comparison of each with each: 4,000,000
