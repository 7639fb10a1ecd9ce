"""The IP addresses of callers, in the one form in which they are known and compared."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def address_of(text: str) -> str | None:
    """The usual form of an IP address, of an IPv4 address in the form of IPv6, too. None: it is none, or has a zone
    (fe80::7%eth0): callers are known without theirs.
    """
    try:
        found = ip_address(text)
    except ValueError:
        return None
    if "%" in text:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)
