"""The access file is checked strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="streamlog[console] is not installed")

from streamlog.console.access.database import AccessError
from streamlog.console.access.settings import is_loopback, load

RULE = '[[values]]\ntopics = "pay.*"\nroles = ["viewer"]\nhide = ["value"]\nmask = ["card.number"]\n'
OIDC = '[oidc]\nissuer = "https://login.example"\nclient_id = "console"\n[oidc.roles]\nadmin = ["sre"]\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(text)
    return path


def test_all_of_it(tmp_path: Path) -> None:
    found = load(written(tmp_path, RULE + OIDC))
    assert found.values[0].mask == ("card.number",)
    assert found.oidc is not None
    assert found.oidc.roles == {"admin": ("sre",)}
    assert load(written(tmp_path, "")).values == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1", "unknown field `x`"),
        ("[[values]", "access.toml"),
        (RULE + "masks = []", "unknown field `masks`"),
        (RULE.replace('["viewer"]', '["root"]'), "there is no role 'root'"),
        (RULE.replace('["viewer"]', "[]"), "applies to no one"),
        (RULE.replace('["viewer"]', '"viewer"'), "Expected `array`"),
        (RULE.replace('"pay.*"', '""'), "topics is empty"),
        (RULE.replace('["value"]', '["values"]'), "Invalid enum value"),
        (RULE.replace('["value"]', "[]").replace('["card.number"]', "[]"), "has no effect"),
        (RULE.replace("card.number", "card..number"), "has an empty name"),
        (OIDC.replace("https://login.example", "login.example"), "is not an address"),
        (OIDC.replace("https:", "http:"), "must use https"),
        (OIDC.replace('"console"', '""'), "client_id is empty"),
        (OIDC.replace("admin", "root"), "there is no role 'root'"),
        (OIDC.replace('"sre"', ""), "no one could log in"),
        (OIDC + "x = 1", "Expected `array`"),
        ("#" * (2 << 20), "larger than 1048576 bytes"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(AccessError) as caught:
        load(written(tmp_path, text))
    assert problem in str(caught.value)


def test_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example", "localhost.example")))
