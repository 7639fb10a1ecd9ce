"""The identity of a node in its certificate: the URI `urn:streamlog:node:ID` among the subject's alternative names.

A URI of our own, not the common name: an authority that also signs certificates of people and programs does not put it
into one by accident.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from streamlog.model import INT32_MAX, BrokerId

_NODE: Final = re.compile(r"urn:streamlog:node:(0|[1-9][0-9]{0,9})")


def node_uri(node_id: int) -> str:
    return f"urn:streamlog:node:{node_id}"


def node_of(names: Iterable[str]) -> BrokerId | None:
    """The node id among a certificate's alternative names; None: the certificate is not a node's, or names several."""
    found = {int(match[1]) for name in names if (match := _NODE.fullmatch(name)) is not None}
    if len(found) != 1 or (node_id := found.pop()) > INT32_MAX:
        return None
    return BrokerId(node_id)


@lru_cache(maxsize=1_024)
def serial_of(certificate: bytes) -> str:
    """The serial number of a certificate in PEM, hexadecimal; empty if it cannot be read."""
    from cryptography import x509  # takes long to load: imported where there is TLS

    try:
        return f"{x509.load_pem_x509_certificate(certificate).serial_number:x}"
    except ValueError:
        return ""
