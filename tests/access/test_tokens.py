"""Bearer tokens: which are accepted, and why the others are not."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.access.tokens import TOKEN_LENGTH_MAX, TokenError, TokenRules, UnknownKeyError, parse_keys, verified
from tests.support.tokens import AUDIENCE, ISSUER, TokenIssuer, key_set

RULES = TokenRules(issuer=ISSUER, audiences=("other", AUDIENCE))
ISSUERS = {kind: TokenIssuer(kind, kind) for kind in ("ES256", "RS256", "PS384", "EdDSA")}
KEYS = parse_keys(key_set(*ISSUERS.values()))
ES = ISSUERS["ES256"]


def now_ms() -> int:
    return int(time.time() * 1000)


def refusal(token: str, rules: TokenRules = RULES) -> str:
    with pytest.raises(TokenError) as caught:
        verified(token, KEYS, rules, now_ms())
    return str(caught.value)


@pytest.mark.parametrize("kind", ISSUERS)
def test_a_token_of_each_kind_of_key(kind: str) -> None:
    found = verified(ISSUERS[kind].token("alice", exp=10_000_000_000), KEYS, RULES, now_ms())
    assert (found.user, found.expires_ms) == ("alice", 10_000_000_000_000 + RULES.clock_skew_ms)
    assert found.key_digest in {key.digest for key in KEYS}


def test_an_audience_among_many_and_the_user_by_another_claim() -> None:
    rules = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), user_claim="client_id")
    token = ES.token(aud=["x", AUDIENCE], client_id="orders-service", sub="0815")
    assert verified(token, KEYS, rules, now_ms()).user == "orders-service"


def test_clocks_may_differ_by_the_skew() -> None:
    assert verified(ES.token(lifetime_s=-20), KEYS, RULES, now_ms()).user == "alice"
    assert verified(ES.token(nbf=time.time() + 20), KEYS, RULES, now_ms()).user == "alice"


def test_a_time_beyond_the_range_of_floats_is_one() -> None:
    assert verified(ES.token(exp=10**400), KEYS, RULES, now_ms()).user == "alice"
    assert "it is not valid yet" in refusal(ES.token(nbf=10**400))
    assert "it has expired" in refusal(ES.token(exp=-(10**400)))


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": time.time() - 40}, "it has expired"),
        ({"exp": None}, "it has no expiry (claim exp)"),
        ({"exp": "soon"}, "its claim exp is not a time"),
        ({"exp": True}, "its claim exp is not a time"),
        ({"exp": float("nan")}, "its claim exp is not a time"),
        ({"exp": float("inf")}, "its claim exp is not a time"),
        ({"exp": [1]}, "its claim exp is not a time"),
        ({"nbf": time.time() + 600}, "it is not valid yet"),
        ({"aud": "billing"}, "its audience is billing, expected other or streamlog"),
        ({"aud": None}, "its audience is missing"),
        ({"aud": [["streamlog"]]}, "its audience is"),
        ({"iss": "https://issuer.example.evil"}, "its issuer is https://issuer.example.evil, expected"),
        ({"iss": None}, "its issuer is missing"),
        ({"sub": None}, "its claim sub must be a name"),
        ({"sub": ""}, "its claim sub must be a name"),
        ({"sub": "a\nb"}, "its claim sub must be a name"),
        ({"sub": "a" * 257}, "its claim sub must be a name"),
    ],
)
def test_what_a_token_says(claims: dict[str, Any], said: str) -> None:
    assert said in refusal(ES.token(**claims))


def test_a_key_decides_the_algorithm() -> None:
    """Neither none, nor a public key taken for a shared secret, nor another key's algorithm."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "root", "exp": time.time() + 60}
    unsigned = jwt.encode(claims, "", algorithm="none", headers={"kid": "RS256"})
    assert "its algorithm none is not one of the key's" in refusal(unsigned)
    shared = jwt.encode(claims, "s" * 64, algorithm="HS256", headers={"kid": "RS256"})
    assert "its algorithm HS256" in refusal(shared)
    assert "its algorithm ES256" in refusal(ES.token(header={"kid": "RS256"}))


def test_a_signature_by_another_key() -> None:
    stranger = TokenIssuer("ES256", "ES256")
    assert "its signature is not by one of the issuer's keys" in refusal(stranger.token())
    head, body, signature = ES.token().split(".")
    other = ES.token("root").split(".")[1]
    assert "its signature" in refusal(f"{head}.{other}.{signature}")
    assert body != other


def test_an_unknown_key_may_be_a_new_one() -> None:
    for token in (ES.token(header={"kid": "next"}), TokenIssuer().token(header={"kid": None})):
        with pytest.raises(UnknownKeyError):
            verified(token, KEYS, RULES, now_ms())


def test_a_token_without_a_key_id_fits_any_key() -> None:
    assert verified(ES.token(header={"kid": None}), KEYS, RULES, now_ms()).user == "alice"


def test_critical_extensions_are_not_ignored() -> None:
    refusal(ES.token(header={"crit": ["x"], "x": 1}))  # by this module, or by PyJWT in its later versions


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_nonsense_is_refused(text: str) -> None:
    refusal(text)


def test_a_long_one_is_not_looked_at() -> None:
    assert f"more than {TOKEN_LENGTH_MAX} characters" in refusal(ES.token(filler="x" * TOKEN_LENGTH_MAX))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b"", "is not a JSON web key set"),
        (b"[]", "is not a JSON web key set"),
        (b"{}", "it has no list"),
        (b'{"keys": [1]}', "it has no list"),
        (b'{"keys": []}', "has no key for signatures"),
        (b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "has no key for signatures"),
        (b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}', "has no key for signatures"),
        (b'{"keys": [{"kty": "EC", "crv": "P-256", "x": 1}]}', "has no key for signatures"),
        (b'{"keys": [' + b"[" * 50_000, "is not a JSON web key set"),
        (json.dumps({"keys": [ES.jwk()] * 101}).encode(), "has 101 keys; the limit is 100"),
    ],
)
def test_a_document_that_is_no_key_set(document: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_keys(document)


def test_keys_for_other_uses_are_left_out() -> None:
    jwk = ES.jwk()
    others = [{**jwk, "use": "enc"}, {**jwk, "d": "AA"}, {**jwk, "alg": "RS256"}, {**jwk, "kid": 7}]
    assert [key.key_id for key in parse_keys(json.dumps({"keys": [*others, jwk]}).encode())] == ["ES256"]
