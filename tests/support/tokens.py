"""An issuer of bearer tokens, as a test needs one: keys, tokens, its JWK set."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example"
AUDIENCE = "streamlog"


class TokenIssuer:
    def __init__(self, kind: str = "ES256", key_id: str = "one") -> None:
        self.kind = kind
        self.key_id = key_id
        self.key: Any
        self._algorithm: Any
        if kind == "EdDSA":
            self.key, self._algorithm = ed25519.Ed25519PrivateKey.generate(), OKPAlgorithm
        elif kind.startswith("ES"):
            self.key, self._algorithm = ec.generate_private_key(ec.SECP256R1()), ECAlgorithm
        else:
            self.key, self._algorithm = rsa.generate_private_key(65_537, 2_048), RSAAlgorithm

    def jwk(self) -> dict[str, Any]:
        found = json.loads(self._algorithm.to_jwk(self.key.public_key()))
        return {**found, "kid": self.key_id, "use": "sig"}

    def token(self, user: str = "alice", *, lifetime_s: float = 3_600, header: Any = None, **claims: Any) -> str:
        """A claim or header of None is left out."""
        given = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "exp": time.time() + lifetime_s, **claims}
        kept = {name: value for name, value in given.items() if value is not None}
        headers = {name: value for name, value in {"kid": self.key_id, **(header or {})}.items() if value is not None}
        return jwt.encode(kept, self.key, algorithm=self.kind, headers=headers)


def key_set(*issuers: TokenIssuer) -> bytes:
    return json.dumps({"keys": [one.jwk() for one in issuers]}).encode()
