"""Which entry decides: examples of Kafka's rules, and a slow model that looks at every entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.access.acl import Acl, AclOperation, AclPermission, AclResourceType, PatternType, check_acl
from streamlog.access.acl_rules import AclRules
from streamlog.errors import InvalidRequestError

O = AclOperation  # noqa: E741
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


def acl(
    principal: str,
    operation: AclOperation,
    name: str,
    permission: AclPermission = ALLOW,
    *,
    prefixed: bool = False,
    host: str = "*",
    kind: AclResourceType = TOPIC,
) -> Acl:
    return Acl(
        resource_type=kind,
        name=name,
        pattern_type=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal=principal,
        operation=operation,
        permission=permission,
        host=host,
    )


def may(acls: list[Acl], principal: str, operation: AclOperation, name: str, host: str = "h") -> bool:
    return AclRules(acls).decide(principal, host, operation, TOPIC, name).allowed


def test_without_an_entry_nothing_is_allowed() -> None:
    assert not may([], "User:a", O.READ, "t")
    assert AclRules([], default=True).decide("User:a", "h", O.READ, TOPIC, "t").allowed
    mine = AclRules([acl("User:b", O.READ, "t")], default=True)
    assert not mine.decide("User:a", "h", O.READ, TOPIC, "t").allowed, "the resource has an entry"
    assert mine.decide("User:a", "h", O.READ, TOPIC, "u").allowed


def test_deny_precedes_allow_in_any_order() -> None:
    both = [acl("User:a", O.READ, "t"), acl("User:*", O.ALL, "t", DENY)]
    for acls in (both, both[::-1]):
        decision = AclRules(acls).decide("User:a", "h", O.READ, TOPIC, "t")
        assert (decision.allowed, decision.acl) == (False, both[1])
        assert "denied by: DENY User:* ALL on topic t from *" in decision.reason


def test_what_is_implied() -> None:
    for operation in (O.READ, O.WRITE, O.DELETE, O.ALTER, O.ALL):
        assert may([acl("User:a", operation, "t")], "User:a", O.DESCRIBE, "t")
    assert not may([acl("User:a", O.CREATE, "t")], "User:a", O.DESCRIBE, "t")
    assert may([acl("User:a", O.ALTER_CONFIGS, "t")], "User:a", O.DESCRIBE_CONFIGS, "t")
    denied = [acl("User:a", O.DESCRIBE, "t"), acl("User:a", O.READ, "t", DENY)]
    assert may(denied, "User:a", O.DESCRIBE, "t"), "a denial implies nothing"


def test_names_hosts_and_types() -> None:
    assert may([acl("User:a", O.READ, "lo", prefixed=True)], "User:a", O.READ, "logs")
    assert not may([acl("User:a", O.READ, "lo")], "User:a", O.READ, "logs")
    assert may([acl("User:a", O.READ, "*")], "User:a", O.READ, "logs")
    assert not may([acl("User:a", O.READ, "*", prefixed=True)], "User:a", O.READ, "logs")
    assert may([acl("User:a", O.READ, "t", host="h")], "User:a", O.READ, "t")
    assert not may([acl("User:a", O.READ, "t", host="i")], "User:a", O.READ, "t")
    assert not may([acl("User:a", O.READ, "t", kind=GROUP)], "User:a", O.READ, "t")
    assert not may([acl("User:a", O.READ, "t")], "User:aa", O.READ, "t")


def test_for_any_and_for_all() -> None:
    rules = AclRules([acl("User:a", O.WRITE, "t"), acl("User:a", O.WRITE, "t", DENY)])
    assert not rules.may_for_any("User:a", "h", O.WRITE, TOPIC)
    rules = AclRules([acl("User:a", O.WRITE, "t"), acl("User:a", O.WRITE, "u", DENY)])
    assert rules.may_for_any("User:a", "h", O.WRITE, TOPIC)
    assert not rules.may_for_all("User:a", "h", O.WRITE, TOPIC)
    assert AclRules([acl("User:a", O.ALL, "*")]).may_for_all("User:a", "h", O.WRITE, TOPIC)
    assert not AclRules([acl("User:a", O.ALL, "*"), acl("User:*", O.WRITE, "x", DENY)]).may_for_all(
        "User:a", "h", O.WRITE, TOPIC
    )


ACLS = st.builds(
    acl,
    st.sampled_from(["User:a", "User:b", "User:*"]),
    st.sampled_from(list(O)),
    st.sampled_from(["*", "t", "to", "top", "u"]),
    st.sampled_from([ALLOW, DENY]),
    prefixed=st.booleans(),
    host=st.sampled_from(["*", "h", "i"]),
    kind=st.sampled_from([TOPIC, GROUP]),
)
IMPLIED = {
    O.DESCRIBE: {O.READ, O.WRITE, O.DELETE, O.ALTER},
    O.DESCRIBE_CONFIGS: {O.ALTER_CONFIGS},
}


@given(
    st.lists(ACLS, max_size=12),
    st.sampled_from(["User:a", "User:b"]),
    st.sampled_from([one for one in O if one is not O.ALL]),
    st.sampled_from(["t", "to", "tops", "v", "*"]),
)
def test_as_the_model_decides(acls: list[Acl], principal: str, operation: AclOperation, name: str) -> None:
    own = [
        one
        for one in acls
        if one.resource_type is TOPIC
        and one.principal in (principal, "User:*")
        and one.host in ("h", "*")
        and (name.startswith(one.name) if one.pattern_type is PatternType.PREFIXED else one.name in (name, "*"))
    ]
    denied = any(one.permission is DENY and one.operation in (operation, O.ALL) for one in own)
    granting = {operation, O.ALL, *IMPLIED.get(operation, set())}
    allowed = any(one.permission is ALLOW and one.operation in granting for one in own)
    assert may(acls, principal, operation, name) == (allowed and not denied)
    if allowed and not denied:
        assert AclRules(acls).may_for_any(principal, "h", operation, TOPIC) or name == "*"


@pytest.mark.parametrize("host", ["*", "10.0.0.7", "2001:db8::1"])
def test_hosts_that_callers_are_known_by(host: str) -> None:
    check_acl(acl("User:a", O.READ, "t", host=host))


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("2001:DB8::1", "must be written as 2001:db8::1"),
        ("::ffff:10.0.0.7", "must be written as 10.0.0.7"),
        ("10.0.0.300", "must be an IP address"),
        ("host.example", "must be an IP address"),
        ("fe80::7%eth0", "must be an IP address"),
        ("", "must be an IP address"),
    ],
)
def test_a_host_that_would_match_no_caller_is_refused(host: str, reason: str) -> None:
    """Above all in a DENY entry: it would protect nothing."""
    with pytest.raises(InvalidRequestError, match=reason):
        check_acl(acl("User:a", O.READ, "t", host=host, permission=AclPermission.DENY))


@pytest.mark.parametrize(
    ("name", "kind", "prefixed"),
    [
        ("*", TOPIC, False),
        ("orders-", TOPIC, True),
        (".", TOPIC, True),
        ("__consumer_offsets", TOPIC, False),
        ("*", GROUP, True),  # groups and transactional ids may have any name
        ("a b", AclResourceType.TRANSACTIONAL_ID, False),
        ("*", AclResourceType.CLUSTER, False),
        ("kafka-cluster", AclResourceType.CLUSTER, True),
    ],
)
def test_names_that_resources_have(name: str, kind: AclResourceType, *, prefixed: bool) -> None:
    check_acl(acl("User:a", O.ALL, name, kind=kind, prefixed=prefixed))


@pytest.mark.parametrize(
    ("name", "kind", "prefixed", "reason"),
    [
        ("*", TOPIC, True, "no topic has a name that begins with '\\*'"),
        ("orders-*", TOPIC, False, "no topic has the name 'orders-\\*'"),
        ("orders-*", TOPIC, True, "no topic has a name that begins with 'orders-\\*'"),
        ("..", TOPIC, False, "no topic has the name"),
        ("a b", TOPIC, False, "no topic has the name"),
        ("*", AclResourceType.CLUSTER, True, "the name of the cluster resource is kafka-cluster"),
        ("kafka", AclResourceType.CLUSTER, True, "the name of the cluster resource is kafka-cluster"),
    ],
)
def test_a_name_that_no_resource_has_is_refused(
    name: str, kind: AclResourceType, reason: str, *, prefixed: bool
) -> None:
    """Above all in a DENY entry: it would deny nothing."""
    with pytest.raises(InvalidRequestError, match=reason):
        check_acl(acl("User:a", O.ALL, name, DENY, kind=kind, prefixed=prefixed))
