"""The same records in other wrapping."""

from __future__ import annotations

import itertools

import pytest

from streamlog.errors import MessageTooLargeError
from streamlog.model import ProducerEpoch, ProducerId
from streamlog.records import BatchFields, Codec, check_crc, codec_of, decode_batch, encode_batch, read_header, repacked


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Codec, Codec)))
def test_all_but_codec_length_and_crc_stays(before: Codec, after: Codec) -> None:
    fields = BatchFields(
        codec=before, producer_id=ProducerId(7), producer_epoch=ProducerEpoch(2), base_sequence=9, is_transactional=True
    )
    data = b"before" + encode_batch([b"v" * 50, None], [b"k", b"l"], timestamps=[5, 8], fields=fields) + b"after"
    header = read_header(data, 6)
    packed = repacked(data, 6, header, after)
    found = read_header(packed, 0)
    check_crc(packed, 0, found)
    assert codec_of(found.attributes) is after
    assert found._replace(length=header.length, crc=header.crc, attributes=header.attributes) == header
    assert found.size_bytes == len(packed)
    assert decode_batch(packed) == decode_batch(data, 6)


def test_the_bound_on_unpacking_holds() -> None:
    data = encode_batch([bytes(5000)], timestamps=1, fields=BatchFields(codec=Codec.ZSTD))
    with pytest.raises(MessageTooLargeError):
        repacked(data, 0, read_header(data, 0), Codec.GZIP, unpacked_bytes_max=1000)
