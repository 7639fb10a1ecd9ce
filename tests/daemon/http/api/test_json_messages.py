"""What a request of JSON costs before it is refused."""

from __future__ import annotations

import pytest

from streamlog.daemon.http.api.json_messages import checked_object


class Name(str):
    """Counts how often names are compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str(self) == other


def test_a_field_that_stands_twice_among_many_is_found_in_one_pass() -> None:
    count = 2_000
    pairs: list[tuple[str, object]] = [(Name(number), 0) for number in range(count)]
    Name.compared = 0
    with pytest.raises(ValueError, match=f"'{count - 1}' stands twice"):
        checked_object([*pairs, (Name(count - 1), 0)])
    assert Name.compared < 10 * count  # a comparison of each with each: 4,000,000
