"""Who may connect to a node, and what they may do there (FAULTS "Security")."""

from __future__ import annotations

from typing import Final

from streamlog.config.kinds import Boolean, ListOf, OneOf, Text
from streamlog.config.setting import Section, Setting, section
from streamlog.config.tls_settings import TLS

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

SSL_CLIENT_AUTH: Final = Setting(
    "ssl.client.auth", OneOf(("required", "requested", "none")), "required", kafka="none",
    doc="Whether a client must show a certificate, may, or is not asked; a node always must.")
BEARER_TOKENS_FILE: Final[Setting[str | None]] = Setting(
    "bearer.tokens.file", Text(), None, ours=True,
    doc="A file with the bearer tokens that stand for a principal each; over TLS alone.")
AUTHORIZER_CLASS_NAME: Final = Setting(
    "authorizer.class.name",
    OneOf(("none", "StandardAuthorizer"),
           {"": "none", "org.apache.kafka.metadata.authorizer.StandardAuthorizer": "StandardAuthorizer"}), "none",
    doc="Whether what a principal may do is checked by access control lists (StandardAuthorizer) or not at all.")
SUPER_USERS: Final = Setting(
    "super.users", ListOf(Text(), separator=";"), (),
    doc="The principals that may do everything, as User:name, with semicolons between them.")
ALLOW_EVERYONE_IF_NO_ACL_FOUND: Final = Setting(
    "allow.everyone.if.no.acl.found", Boolean(), False,
    doc="Whether everybody may use what no access control list names.")
AUDIT_LOG_FILE: Final[Setting[str | None]] = Setting(
    "audit.log.file", Text(), None, ours=True,
    doc="The file that tells who did what to the cluster, and what was refused; none is written without it.")
# fmt: on

SECURITY: Final = Section("Security", (*TLS.settings, *section("", globals()).settings))
