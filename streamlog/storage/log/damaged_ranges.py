"""What the examination of a segment found: its intact ranges, and the corrupt ones with the offsets they held."""

from __future__ import annotations

from msgspec import Struct

from streamlog.model import Offset
from streamlog.storage.segments.verified import VerifiedRange


class SegmentDamage(Struct, frozen=True, kw_only=True):
    """Offsets [begin_offset, end_offset) of a log cannot be read here."""

    path: str
    position: int  # in the file, of the first corrupt batch
    end_position: int  # of the next intact batch; the file's end
    begin_offset: Offset
    end_offset: Offset
    reason: str
    in_doubt: bool = False  # intact but for what the CRC does not cover: leader epoch (batch_checks), base offset

    def __str__(self) -> str:
        return f"{self.path}: position {self.position}: {self.reason} (offsets {self.begin_offset}..{self.end_offset})"


class ExaminationResult(Struct, frozen=True, kw_only=True):
    damages: tuple[SegmentDamage, ...]
    intact: tuple[VerifiedRange, ...]  # everything else
    index_fault: str  # "": the indexes agree with the log
    read_bytes: int

    def readable(self, *, doubtful: bool) -> list[VerifiedRange]:
        """In order of their positions; `doubtful`: those in doubt, too."""
        if not doubtful:
            return list(self.intact)
        doubts = [VerifiedRange(one.position, one.end_position, one.end_offset) for one in self.damages if one.in_doubt]
        return sorted([*self.intact, *doubts])
