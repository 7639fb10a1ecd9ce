"""Headers of requests that are remembered say what they say without."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from streamlog.ports.grpc_adapter.metadata import REMEMBERED_MAX, HeaderFields, RequestMemory

TIMEOUT: Final = b"grpc-timeout"
REQUEST: Final = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/p.S/M"),
    (b"content-type", b"application/grpc"),
)
OTHERS: Final = st.sampled_from([(), ((b"x-a", b"1"),), ((b"x-a", b"bad\n"),), ((b":late", b""),), ((TIMEOUT, b"7S"),)])
TEXTS: Final = st.sampled_from([b"1S", b"59999123u", b"", b"1 S", b"\n", b"1\0", b"never"])
FIELDS: Final = st.builds(
    lambda others, place, text: (*[*REQUEST, *others][:place], (TIMEOUT, text), *[*REQUEST, *others][place:]),
    OTHERS,
    st.integers(0, len(REQUEST) + 1),
    TEXTS,
)


@given(st.lists(st.one_of(FIELDS, FIELDS, st.just(REQUEST)), max_size=12))
def test_whatever_came_before(requests: list[tuple[tuple[bytes, bytes], ...]]) -> None:
    memory = RequestMemory()
    for fields in requests:
        assert memory.request(HeaderFields(fields)) == HeaderFields(fields).request


def test_only_the_deadline_is_read_again() -> None:
    memory = RequestMemory()
    first, second = (
        memory.request(HeaderFields((*REQUEST, (b"x-a", b"1"), (TIMEOUT, text)))) for text in (b"1S", b"200m")
    )
    assert first is not None
    assert second is not None
    assert second.metadata is first.metadata
    assert (first.timeout, second.timeout, second.size - first.size) == (b"1S", b"200m", 2)


def test_few_are_remembered_and_no_large_ones() -> None:
    memory = RequestMemory()
    large = HeaderFields((*REQUEST, (b"x-a", bytes(5_000).replace(b"\0", b"a")), (TIMEOUT, b"1S")))
    assert memory.request(large) is not None
    assert not memory._known
    for number in range(3 * REMEMBERED_MAX):
        memory.request(HeaderFields((*REQUEST, (b"x-a", b"%d" % number), (TIMEOUT, b"1S"))))
    assert len(memory._known) <= REMEMBERED_MAX
