"""The certificates of nodes and clients, and those that they trust. PEM only.

Files are reloaded when they change, so certificates are renewed without a restart.
"""

from __future__ import annotations

from typing import Final

from streamlog.config.kinds import OneOf, Text
from streamlog.config.setting import Setting, section

_PEM_LENGTH_MAX: Final = 256 << 10

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

SSL_KEYSTORE_TYPE: Final = Setting(
    "ssl.keystore.type", OneOf(("PEM",)), "PEM", kafka="JKS",
    doc="The format of the key and its certificates.")
SSL_KEYSTORE_LOCATION: Final[Setting[str | None]] = Setting(
    "ssl.keystore.location", Text(), None,
    doc="A PEM file with the private key, not encrypted, followed by the certificate chain.")
SSL_KEYSTORE_KEY: Final[Setting[str | None]] = Setting(
    "ssl.keystore.key", Text(_PEM_LENGTH_MAX, multiline=True, secret=True), None, sensitive=True,
    doc="The private key itself, in PEM, instead of ssl.keystore.location.")
SSL_KEYSTORE_CERTIFICATE_CHAIN: Final[Setting[str | None]] = Setting(
    "ssl.keystore.certificate.chain", Text(_PEM_LENGTH_MAX, multiline=True), None,
    doc="The certificate chain of ssl.keystore.key, in PEM.")
SSL_TRUSTSTORE_TYPE: Final = Setting(
    "ssl.truststore.type", OneOf(("PEM",)), "PEM", kafka="JKS",
    doc="The format of the trusted certificates.")
SSL_TRUSTSTORE_LOCATION: Final[Setting[str | None]] = Setting(
    "ssl.truststore.location", Text(), None,
    doc="A PEM file with the trusted certificate authorities.")
SSL_TRUSTSTORE_CERTIFICATES: Final[Setting[str | None]] = Setting(
    "ssl.truststore.certificates", Text(_PEM_LENGTH_MAX, multiline=True), None,
    doc="The certificate authorities themselves, in PEM, instead of ssl.truststore.location.")
# fmt: on

TLS: Final = section("TLS", globals())
