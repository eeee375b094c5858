"""Bearer tokens of senders: JSON Web Tokens that are signed with a key whose public half is known.

A token names the schemas for which it counts, in the claim ``slackwater`` or in those of
CockroachDB Replicator: ``{"schemas": [["slackwater", "default"], ["slackwater", "*"]]}``. It has an
id (``jti``), by which it can be revoked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from slackwater.server.ingress.settings import invalid

CLAIMS = (
    "slackwater",
    "https://github.com/cockroachdb/replicator",
    "https://github.com/cockroachdb/cdc-sink",
)
RELOAD_S = 60.0
"""Seconds after which the files are read again."""
_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----", re.DOTALL)

_log = structlog.get_logger("tokens")


@dataclass(frozen=True, slots=True)
class _Key:
    key: Any
    algorithms: tuple[str, ...]


class Tokens:
    """The keys of tokens, and the tokens that were revoked. Used by one thread."""

    def __init__(
        self,
        keys: str,
        revoked: str | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`keys` is a file of public keys in PEM, `revoked` one with an id in each line.

        Raises SLACKWATER_INVALID_OPTION.
        """
        self._keys_path = keys
        self._revoked_path = revoked
        self._monotonic = monotonic
        self._keys = self._read_keys()
        self._revoked = self._read_revoked()
        self._read_s = monotonic()

    def allows(self, authorization: str | None, schema: Sequence[str]) -> bool:
        """Whether the header ``Authorization`` has a token that counts for the schema."""
        self._reload()
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        claims = self._claims(token.strip())
        if claims is None or claims["jti"] in self._revoked:
            return False
        return any(_names(claims.get(claim), schema) for claim in CLAIMS)

    def _claims(self, token: str) -> Mapping[str, Any] | None:
        import jwt

        for each in self._keys:
            try:
                found: Mapping[str, Any] = jwt.decode(
                    token,
                    each.key,
                    algorithms=list(each.algorithms),
                    options={"require": ["jti"], "verify_aud": False, "verify_iat": False},
                )
            except (jwt.PyJWTError, ValueError):
                continue
            if isinstance(found["jti"], str):
                return found
        return None

    def _reload(self) -> None:
        if self._monotonic() - self._read_s < RELOAD_S:
            return
        self._read_s = self._monotonic()
        try:
            self._keys, self._revoked = self._read_keys(), self._read_revoked()
        except Exception as error:
            # Those of before still count: a file may be half written.
            _log.error("keys not read", error=str(error))

    def _read_keys(self) -> tuple[_Key, ...]:
        try:
            from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
            from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
            from cryptography.hazmat.primitives.serialization import load_pem_public_key
        except ImportError:
            raise invalid(
                "jwt.keys", self._keys_path, "it needs the extra slackwater[ingress]"
            ) from None
        found: list[_Key] = []
        try:
            texts = _PEM.findall(Path(self._keys_path).read_text(encoding="utf-8"))
            for key in (load_pem_public_key(text.encode()) for text in texts):
                if isinstance(key, EllipticCurvePublicKey):
                    found.append(_Key(key, ("ES256", "ES384", "ES512")))
                elif isinstance(key, RSAPublicKey):
                    found.append(_Key(key, ("RS256", "RS384", "RS512")))
                else:
                    raise ValueError("the keys are of RSA or of elliptic curves")
        except (OSError, ValueError) as error:
            raise invalid("jwt.keys", self._keys_path, str(error)) from None
        if not found:
            raise invalid("jwt.keys", self._keys_path, "it has no public key in PEM")
        return tuple(found)

    def _read_revoked(self) -> frozenset[str]:
        if self._revoked_path is None:
            return frozenset()
        try:
            lines = Path(self._revoked_path).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise invalid("jwt.revoked", self._revoked_path, str(error)) from None
        return frozenset(line.strip() for line in lines if line.strip())


def _names(claim: Any, schema: Sequence[str]) -> bool:
    schemas = claim.get("schemas") if isinstance(claim, Mapping) else None
    if not isinstance(schemas, list):
        return False
    wanted = list(schema)
    return any(each in (wanted, [*wanted[:-1], "*"]) for each in schemas)
