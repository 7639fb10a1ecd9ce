"""Who may connect to a node, and what they may do there (FAULTS "Security")."""

from __future__ import annotations

from typing import Final

from streamlog.config.addresses import DocumentUrlKind
from streamlog.config.kinds import INT64_MAX, Boolean, ListOf, OneOf, Text, count, duration_ms, size_bytes
from streamlog.config.setting import Section, Setting, section
from streamlog.config.settings.tls_settings import TLS

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

SSL_CLIENT_AUTH: Final = Setting(
    "ssl.client.auth", OneOf(("required", "requested", "none")), "required", kafka="none",
    doc="Whether a client's certificate is required, or none is requested; a node's is always required. requested is "
    "for listener.name.https.ssl.client.auth alone: other listeners refuse it.")
SSL_PRINCIPAL_MAPPING_RULES: Final = Setting(
    "ssl.principal.mapping.rules", Text(4_096, may_be_empty=True), "DEFAULT",
    doc="Rules, as RULE:pattern/replacement/[LU], that make a principal of a certificate's distinguished name.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL: Final[Setting[str | None]] = Setting(
    "sasl.oauthbearer.jwks.endpoint.url", DocumentUrlKind(), None,
    doc="Where the keys of the issuer of bearer tokens are: https:// or file:///; without it tokens are refused.")
SASL_OAUTHBEARER_EXPECTED_ISSUER: Final[Setting[str | None]] = Setting(
    "sasl.oauthbearer.expected.issuer", Text(), None,
    doc="The issuer (claim iss) of the tokens that are accepted.")
SASL_OAUTHBEARER_EXPECTED_AUDIENCE: Final = Setting(
    "sasl.oauthbearer.expected.audience", ListOf(Text(), items_max=100), (),
    doc="The audiences (claim aud) of the tokens that are accepted: one of them must be in the token.")
SASL_OAUTHBEARER_SUB_CLAIM_NAME: Final = Setting(
    "sasl.oauthbearer.sub.claim.name", Text(256), "sub",
    doc="The claim of a token that is the user's name.")
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS: Final = Setting(
    "sasl.oauthbearer.clock.skew.seconds", count(0, 3_600), 30,
    doc="How far the clocks of the issuer and of this node may be apart.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS: Final = Setting(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms", duration_ms(1_000, INT64_MAX), 3_600_000,
    doc="The age at which the issuer's keys are loaded again; a token with an unknown key has them loaded earlier.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS: Final = Setting(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", duration_ms(10, 3_600_000), 100,
    doc="The wait before the issuer's keys are requested again after a failure; it doubles each time.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS: Final = Setting(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", duration_ms(10, 3_600_000), 10_000,
    doc="The longest wait before the issuer's keys are requested again.")
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
QUOTA_WINDOW_NUM: Final = Setting(
    "quota.window.num", count(1, 1_000), 11,
    doc="A single request or response counts at most for so many windows of its quota, however large it is.")
QUOTA_WINDOW_SIZE_SECONDS: Final = Setting(
    "quota.window.size.seconds", count(1, 3_600), 1,
    doc="How many seconds of a quota a client that used less may use at once.")
AUDIT_LOG_FILE: Final = Setting(
    "audit.log.file", Text(may_be_empty=True), "", ours=True,
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
AUDIT_LOG_TOPIC: Final = Setting(
    "audit.log.topic", Text(may_be_empty=True), "", ours=True,
    doc="A topic that gets the events of the audit log too, created when it is first needed; empty: none.")
# fmt: on

SECURITY: Final = Section("Security", (*TLS.settings, *section("", globals()).settings))
