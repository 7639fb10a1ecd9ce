"""Who may connect to a node, and what they may do there (FAULTS "Security")."""

from __future__ import annotations

from typing import Final

from streamlog.config.kinds import INT64_MAX, Boolean, ListOf, OneOf, Text, count, size_bytes
from streamlog.config.setting import Section, Setting, section
from streamlog.config.settings.tls_settings import TLS

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

SSL_CLIENT_AUTH: Final = Setting(
    "ssl.client.auth", OneOf(("required", "requested", "none")), "required", kafka="none",
    doc="Whether a client's certificate is required, requested, or not requested; a node's is always required.")
SSL_PRINCIPAL_MAPPING_RULES: Final = Setting(
    "ssl.principal.mapping.rules", Text(4_096, may_be_empty=True), "DEFAULT",
    doc="Rules, as RULE:pattern/replacement/[LU], that make a principal of a certificate's distinguished name.")
BEARER_TOKENS_FILE: Final[Setting[str | None]] = Setting(
    "bearer.tokens.file", Text(), None, ours=True,
    doc="A file of bearer tokens with the principal of each; tokens are accepted over TLS only.")
AUTHORIZER_CLASS_NAME: Final = Setting(
    "authorizer.class.name",
    OneOf(("none", "StandardAuthorizer"),
           {"": "none", "org.apache.kafka.metadata.authorizer.StandardAuthorizer": "StandardAuthorizer"}), "none",
    doc="Whether requests are authorized by access control lists (StandardAuthorizer) or not at all.")
SUPER_USERS: Final = Setting(
    "super.users", ListOf(Text(), separator=";"), (),
    doc="The principals that may do everything, as User:name, separated by semicolons.")
ALLOW_EVERYONE_IF_NO_ACL_FOUND: Final = Setting(
    "allow.everyone.if.no.acl.found", Boolean(), False,
    doc="Whether every principal may use a resource that has no access control list.")
AUDIT_LOG_FILE: Final[Setting[str | None]] = Setting(
    "audit.log.file", Text(), None, ours=True,
    doc="The audit log, a line of JSON an event: which principal changed what, and which requests were refused; empty: "
        "no file is written.")
AUDIT_LOG_EVENTS: Final = Setting(
    "audit.log.events", ListOf(OneOf(("changes", "refusals", "writes", "reads"))), ("changes", "refusals"), ours=True,
    doc="What the audit log covers: administrative changes, refused requests, writes, reads of records and metadata.")
AUDIT_LOG_MAX_BYTES: Final = Setting(
    "audit.log.max.bytes", size_bytes(0, INT64_MAX), 64 << 20, ours=True,
    doc="The size at which a new file of the audit log is started; 0: never.")
AUDIT_LOG_COUNT: Final = Setting(
    "audit.log.count", count(1, 1_000), 10, ours=True,
    doc="How many files of the audit log are kept, the current one included; 1: a single file without a limit.")
AUDIT_LOG_TOPIC: Final[Setting[str | None]] = Setting(
    "audit.log.topic", Text(), None, ours=True,
    doc="A topic that gets the events of the audit log too, created when it is first needed; empty: none.")
# fmt: on

SECURITY: Final = Section("Security", (*TLS.settings, *section("", globals()).settings))
