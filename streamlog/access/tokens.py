"""Bearer tokens: JSON web tokens (RFC 7519) of an issuer whose public keys (a JWK set, RFC 7517) are known. Pure.

    header --key id--> key --its algorithms only--> signature --> issuer, audience, times --> the user: a claim

The algorithm is chosen by the key, not by the token: a key of RSA verifies RSA signatures only, and there are no shared
secrets and no `none`. Times are compared with the caller's clock.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import jwt
import msgspec
from msgspec import Struct

from streamlog.printable import escaped

if TYPE_CHECKING:
    from jwt.types import Options  # not in each version

TOKEN_LENGTH_MAX: Final = 8_000
USER_LENGTH_MAX: Final = 256
KEYS_MAX: Final = 100
KEYS_BYTES_MAX: Final = 1 << 20
RSA_BITS_MIN: Final = 2_048
_TIME_MAX: Final = 1 << 40
"""Seconds: far beyond any calendar, and exact as a float."""
_ALGORITHMS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
# The signature only: what the claims say is checked below, by the caller's clock.
_OPTIONS: Final[Options] = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


class TokenError(ValueError):
    """The token is refused; the text says why."""


class UnknownKeyError(TokenError):
    """It may be signed by a newer key than those at hand."""


class TokenRules(Struct, frozen=True, kw_only=True):
    issuer: str
    audiences: Sequence[str]  # the token is for one of them
    user_claim: str = "sub"
    clock_skew_ms: int = 30_000


class VerificationKey(Struct, frozen=True, kw_only=True):
    """`digest`: of the whole key, so that a key of a later set is known to be the same."""

    key_id: str  # empty: the set gives none
    algorithms: tuple[str, ...]
    key: Any  # a public key of `cryptography`
    digest: bytes


class AcceptedToken(Struct, frozen=True, kw_only=True):
    user: str
    expires_ms: int  # wall clock; with the skew
    key_digest: bytes  # of the key that signed it


def parse_keys(document: bytes) -> tuple[VerificationKey, ...]:
    """The keys for signatures of a JWK set; others are left out. ValueError if there are none, or too many."""
    try:
        found = msgspec.json.decode(document, type=dict[str, Any]).get("keys")
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("is not a JSON web key set") from None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError('is not a JSON web key set: it has no list "keys"')
    if len(found) > KEYS_MAX:
        raise ValueError(f"has {len(found)} keys; the limit is {KEYS_MAX}")
    keys = [key for one in found if (key := _key(one)) is not None]
    if not keys:
        raise ValueError(
            f"has no key for signatures that is usable: RSA of {RSA_BITS_MIN} bits, EC (P-256, P-384, P-521), Ed25519"
        )
    return tuple(keys)


def _key(jwk: Mapping[str, Any]) -> VerificationKey | None:
    if jwk.get("use", "sig") != "sig" or "d" in jwk:  # a private key is not for publication, and not trusted here
        return None
    kind = str(jwk.get("kty"))
    algorithms = _ALGORITHMS.get((kind, "" if kind == "RSA" else str(jwk.get("crv"))), ())
    if "alg" in jwk:
        algorithms = tuple(one for one in algorithms if one == jwk["alg"])
    key_id = jwk.get("kid", "")
    if not algorithms or not isinstance(key_id, str):
        return None
    try:
        key = jwt.PyJWK(dict(jwk), algorithm=algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if kind == "RSA" and key.key_size < RSA_BITS_MIN:
        return None
    digest = hashlib.sha256(msgspec.json.encode(jwk, order="deterministic")).digest()
    return VerificationKey(key_id=key_id, algorithms=algorithms, key=key, digest=digest)


def verified(token: str, keys: Sequence[VerificationKey], rules: TokenRules, now_ms: int) -> AcceptedToken:
    """TokenError."""
    key, claims = _signed(token, keys)
    if claims.get("iss") != rules.issuer:
        raise TokenError(f"its issuer is {_shown(claims.get('iss'))}, expected {rules.issuer}")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if not any(one in rules.audiences for one in audiences if isinstance(one, str)):
        raise TokenError(f"its audience is {_shown(audience)}, expected {' or '.join(rules.audiences)}")
    expires_ms = _time_ms(claims, "exp")
    if expires_ms is None:
        raise TokenError("it has no expiry (claim exp)")
    expires_ms += rules.clock_skew_ms
    if now_ms >= expires_ms:
        raise TokenError("it has expired")
    begins_ms = _time_ms(claims, "nbf")
    if begins_ms is not None and now_ms < begins_ms - rules.clock_skew_ms:
        raise TokenError("it is not valid yet (claim nbf): compare the clocks of the machines")
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not 0 < len(user) <= USER_LENGTH_MAX or not user.isprintable():
        raise TokenError(f"its claim {rules.user_claim} must be a name of 1 to {USER_LENGTH_MAX} characters")
    return AcceptedToken(user=user, expires_ms=expires_ms, key_digest=key.digest)


def _signed(token: str, keys: Sequence[VerificationKey]) -> tuple[VerificationKey, Mapping[str, Any]]:
    if len(token) > TOKEN_LENGTH_MAX:
        raise TokenError(f"it has more than {TOKEN_LENGTH_MAX} characters")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenError("it is not a JSON web token") from None
    if "crit" in header:
        raise TokenError("it has critical extensions (header crit)")
    key_id, algorithm = header.get("kid"), header.get("alg")
    named = [key for key in keys if key_id is None or key.key_id == key_id]
    if not named:
        raise UnknownKeyError(f"its key {_shown(key_id)} is not among the issuer's keys")
    fitting = [key for key in named if algorithm in key.algorithms]
    if not fitting:
        raise TokenError(f"its algorithm {_shown(algorithm)} is not one of the key's")
    for key in fitting:
        try:
            return key, jwt.decode(token, key.key, algorithms=key.algorithms, options=_OPTIONS)
        except jwt.InvalidSignatureError:
            continue
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenError("it is not a JSON web token") from None
    raise (UnknownKeyError if key_id is None else TokenError)("its signature is not by one of the issuer's keys")


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    """None: it has no such claim."""
    given = claims.get(name)
    if given is None:
        return None
    # Not math.isfinite: it raises OverflowError for an integer beyond the range of floats.
    if isinstance(given, bool) or not isinstance(given, int | float) or not -math.inf < given < math.inf:
        raise TokenError(f"its claim {name} is not a time")
    return int(min(max(given, 0), _TIME_MAX) * 1000)


def _shown(value: object) -> str:
    return escaped(str(value)[:100]) if value is not None else "missing"
