"""ssl.principal.mapping.rules, with the examples of KIP-371."""

from __future__ import annotations

import pytest

from streamlog.access.principals import parse_mapping_rules, principal_of

DN = "CN=kafka-server1,OU=Engineering,O=Example"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("", f"User:{DN}"),
        ("DEFAULT", f"User:{DN}"),
        ("RULE:^CN=(.*?),OU=.*$/$1/", "User:kafka-server1"),
        ("RULE:^CN=(.*?),OU=.*$/$1/U", "User:KAFKA-SERVER1"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L", "User:kafka-server1@engineering"),
        ("RULE:^CN=other$/x/, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.-]*).*$/$1/L, DEFAULT", "User:kafka-server1"),
        ("DEFAULT, RULE:.*/x/", f"User:{DN}"),
        ("RULE:CN=kafka/x/", f"User:{DN}"),
    ],
)
def test_the_first_rule_that_matches(rules: str, principal: str) -> None:
    assert principal_of(DN, parse_mapping_rules(rules)) == principal


@pytest.mark.parametrize(
    "rules", ["RULE:(/x/", "RULE:a/$1/", "RULE:a/b/X", "RULE:a", "other", "DEFAULT DEFAULT", ",DEFAULT"]
)
def test_what_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"must|regular expression|groups"):
        parse_mapping_rules(rules)
