"""The section `jwt` of the configuration.

`token_keys` reads the keys. Invariant: this module imports no cryptography, so that a broker without tokens starts
without it.
"""

from pathlib import Path
from typing import Literal

import msgspec

from mqttlite.security.one_line import one_line

Algorithm = Literal[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]


class TokenConfigError(ValueError):
    """Tokens cannot be verified. `option` is the wrong setting; the message says what is wrong and what to do."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(one_line(message))
        self.option = option


class TokenOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tokens are accepted, and the meaning of their claims. Exactly one of the three key files must be set."""

    algorithms: tuple[Algorithm, ...]
    """The accepted signature algorithms, whatever a token's header says."""
    secret_file: str | None = None
    """The secret for `HS…` algorithms."""
    public_key_file: str | None = None
    """One public key or certificate, in PEM."""
    jwks_file: str | None = None
    """A JSON Web Key Set."""
    audience: str | None = None
    """The required audience: `aud` must be or contain it. Absent: tokens with an `aud` are refused."""
    issuer: str | None = None
    """The required issuer (`iss`). Absent: any."""
    leeway_s: float = 10.0
    """The allowed difference between the clocks of issuer and broker."""
    require_exp: bool = True
    """Whether tokens without expiry are refused."""
    user_claim: str = "sub"
    """The claim with the user name."""
    user_name_must_match: bool = False
    """Whether the user name in CONNECT must equal that of the token. If not, it is ignored."""
    groups_claim: str | None = None
    """The claim with the client's groups."""
    publish_claim: str | None = None
    """The claim with the topic filters that the client may publish to."""
    subscribe_claim: str | None = None
    """The claim with the topic filters that the client may subscribe to."""

    def __post_init__(self) -> None:
        if not self.algorithms:
            raise ValueError('algorithms is empty: name those that the issuer uses, such as ["RS256"]')
        files = [self.secret_file, self.public_key_file, self.jwks_file]
        if sum(each is not None for each in files) != 1:
            raise ValueError("one of secret_file, public_key_file and jwks_file has the keys: set one of them")
        if not 0 <= self.leeway_s <= 600:
            raise ValueError(f"leeway_s is {self.leeway_s:g}: it may be 0 to 600")
        for name in ("audience", "issuer", "user_claim", "groups_claim", "publish_claim", "subscribe_claim"):
            if getattr(self, name) == "":
                raise ValueError(f"{name} is empty: give it a value, or leave it out")

    @property
    def key_file(self) -> tuple[str, Path]:
        """The option that names the file with the keys, and the file."""
        for option in ("secret_file", "public_key_file"):
            if (path := getattr(self, option)) is not None:
                return option, Path(path)
        assert self.jwks_file is not None
        return "jwks_file", Path(self.jwks_file)

    @property
    def limits_topics(self) -> bool:
        """Whether tokens may restrict the topics of their clients."""
        return self.publish_claim is not None or self.subscribe_claim is not None
