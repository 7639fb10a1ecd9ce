"""`consume --format`."""

from __future__ import annotations

import pytest

from streamlog.cli.records.format_template import FormatTemplate
from streamlog.errors import InvalidRequestError
from streamlog.records.decode import Fields

RECORD: Fields = (7, 1_700, b"key", b"a\x1bvalue", (("h", b"1"), ("i", None)))


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        (r"%t %p %o %k %s\n", b"orders 3 7 key a\x1bvalue\n"),
        (r"%T:%K:%S:%h", b"1700:3:7:h=1,i="),
        (r"100%% \x41\t\\", b"100% A\t\\"),
        ("", b""),
    ],
)
def test_fields(template: str, printed: bytes) -> None:
    assert FormatTemplate(template).lines("orders", 3, [RECORD]) == printed


def test_null_is_empty_and_has_the_length_minus_one() -> None:
    assert FormatTemplate("[%k|%s|%K|%S]").lines("t", 0, [(0, 0, None, b"", ()), (1, 0, b"", None, ())]) == (
        b"[||-1|0][||0|-1]"
    )


def test_control_characters_of_records_are_escaped_for_a_terminal() -> None:
    assert FormatTemplate(r"%s\n", escape=True).lines("t", 0, [RECORD]) == b"a\\x1bvalue\n"


@pytest.mark.parametrize(("template", "said"), [("%z", "'%z' is not a field"), ("%", "'%' is not"), (r"\q", r"'\q'")])
def test_what_is_no_format(template: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"--format") as caught:
        FormatTemplate(template)
    assert said in str(caught.value)
