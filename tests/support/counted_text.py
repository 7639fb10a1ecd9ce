"""A text that counts how often one is compared, for tests of how work grows."""

from __future__ import annotations


class CountedText(str):
    compared = 0  # all of them
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedText.compared += 1
        return str(self) == other
