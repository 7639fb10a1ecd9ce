"""Sparse bytes: the content of one file, in the page cache or on the platter.

Unwritten pages do not exist and read as zeros, so a preallocated index of 10 MiB costs nothing until it is written.
Bytes cut off by a truncation read as zeros after the file grows again.
"""

from __future__ import annotations

from typing import Final

PAGE: Final = 4096

_ZEROS: Final = bytes(PAGE)


class Image:
    """Owned by one inode; not shared, not locked."""

    __slots__ = ("pages", "size")

    def __init__(self) -> None:
        self.pages: dict[int, bytearray] = {}  # page number -> PAGE bytes; zeros at and beyond `size`
        self.size = 0

    def copy(self) -> Image:
        image = Image()
        image.size = self.size
        image.pages = {number: page[:] for number, page in self.pages.items()}
        return image

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; shorter only at the end."""
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        first, last = offset // PAGE, (end - 1) // PAGE
        pages = self.pages
        if first == last:
            return bytes(pages.get(first, _ZEROS)[offset % PAGE : (end - 1) % PAGE + 1])
        joined = b"".join([pages.get(number, _ZEROS) for number in range(first, last + 1)])
        skip = offset % PAGE
        return joined[skip : skip + end - offset]

    def write(self, data: bytes, offset: int) -> None:
        begin, length = 0, len(data)
        while begin < length:
            number, at = divmod(offset + begin, PAGE)
            step = min(PAGE - at, length - begin)
            page = self.pages.get(number)
            if page is None:
                page = self.pages[number] = bytearray(PAGE)
            page[at : at + step] = data[begin : begin + step]
            begin += step
        if length:
            self.size = max(self.size, offset + length)

    def resize(self, size: int) -> None:
        if size < self.size:
            whole, rest = divmod(size, PAGE)
            removed = (self.size - 1) // PAGE + 1 - whole
            numbers = range(whole, whole + removed) if removed < len(self.pages) else list(self.pages)
            for number in numbers:
                if number > whole or (number == whole and not rest):
                    self.pages.pop(number, None)
            if rest and whole in self.pages:
                self.pages[whole][rest:] = bytes(PAGE - rest)
        self.size = size
