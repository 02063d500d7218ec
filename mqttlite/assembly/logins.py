"""Builds the authenticators of each listener, and passes authentication questions to them.

To add a login method, add an entry in `Logins.chain`.
"""

import asyncio
import re
from collections.abc import Coroutine, Iterable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqttlite.assembly.permissions import Permissions
from mqttlite.assembly.runtime import Runtime
from mqttlite.config import ConfigError, ListenerOptions
from mqttlite.config.login_methods import LoginMethod
from mqttlite.config.logins import Login, logins
from mqttlite.files.atomic_file import save
from mqttlite.files.shared_document import SharedDocument
from mqttlite.security.auth_chain import AuthChain, FirstOf
from mqttlite.security.auth_questions import AuthQuestions
from mqttlite.security.authenticator import Authenticator
from mqttlite.security.http_authenticator import HttpAuthenticator
from mqttlite.security.identity import CertificateAuthenticator
from mqttlite.security.jail import LoginJail
from mqttlite.security.password_file import PasswordFileError, check
from mqttlite.security.tls import TlsConfigError
from mqttlite.security.token_options import TokenConfigError

if TYPE_CHECKING:
    from mqttlite.security.passwords import PasswordAuthenticator
    from mqttlite.security.tokens import TokenAuthenticator

HTTP_LISTENER: Final = -1
"""The listener number of the gateway, which is not among the listeners of the config and has no password file."""

KICKED_AT_ONCE: Final = 100
"""How many connections one iteration ends when a change of permissions ends many."""


_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that keys of NATS do not have."""


class Logins:
    """`default` is for listeners without a login method in the config. Raises `ConfigError` for unusable files."""

    def __init__(self, runtime: Runtime, permissions: Permissions, default: AuthChain) -> None:
        self._runtime: Final = runtime
        self._permissions: Final = permissions
        self._dynamic_security: Final = permissions.dynamic_security
        self._default: Final = default
        jail = LoginJail(runtime.config.login_jail, runtime.hub.on_jailed, runtime.clock)
        self.questions: Final = AuthQuestions(runtime.answer, jail)
        self.passwords: Final[list[PasswordAuthenticator]] = []
        self.password_documents: Final[dict[Path, SharedDocument]] = {}
        """Each password file, by its path."""
        self._tokens: Final = self._load_tokens()
        self._http: Final = self._load_http()

    def chain(self, number: int, options: ListenerOptions) -> AuthChain:
        """The authenticators of a listener."""
        methods = self._runtime.config.login_methods(options)
        if not methods:
            return self._default if options.authentication is None else AuthChain()
        passwords = self._load_passwords(number, options) if "password" in methods else None
        known: dict[LoginMethod, Authenticator | None] = {
            "password": passwords,
            "jwt": self._tokens,
            "dynamic_security": None if self._dynamic_security is None else self._dynamic_security.authenticator,
            "http": self._http,
            "certificate": CertificateAuthenticator(),
        }
        asked = [each for each in (known[method] for method in methods) if each is not None]
        allow_anonymous = self._runtime.config.passwords_of(options)[1]
        return AuthChain(FirstOf(asked), passwords, allow_anonymous=allow_anonymous)

    def watches(self) -> Iterable[Coroutine[object, object, None]]:
        """The tasks that reload changed password files."""
        return [each.watch(self.kick) for each in self.passwords]

    async def reload(self) -> None:
        """Read all files again, and clear cached answers of other servers."""
        for passwords in self.passwords:
            await passwords.reload()
        if self._tokens is not None:
            await self._tokens.reload()
        if self._http is not None:
            self._http.forget()

    async def close(self) -> None:
        """Close the connections to the HTTP authenticator."""
        if self._http is not None:
            await self._http.close()

    async def kick(self, users: frozenset[str | None]) -> None:
        """End the connections of these users, some at a time. The program's own connections stay."""
        core, loop_driver = self._runtime.core, self._runtime.loop_driver
        await loop_driver.settled()  # the response is written before its client's connection ends
        found = [
            link.connection.client_id
            for link in loop_driver.links.values()
            if link.connection.username in users and not link.connection.identity.is_trusted
        ]
        for number, client_id in enumerate(found, 1):
            core.kick(client_id, self._runtime.clock())
            if number % KICKED_AT_ONCE == 0:
                loop_driver.run()
                await asyncio.sleep(0)
        loop_driver.wake()

    async def user_names(self) -> set[str]:
        """The names of all known users, from all sources."""
        found: set[str] = set()
        for passwords in self.passwords:
            found |= (await passwords.users()).names()
        if self._dynamic_security is not None:
            found |= set(self._dynamic_security.rules.state.clients)
        rules = self._permissions.live_rules.rules
        if rules is not None:
            found |= rules.user_names()
        return found

    def explain(self, user: str | None) -> Iterable[Login]:
        """How each listener would authenticate a user, in words."""
        return logins(self._runtime.config, user, self._knows)

    def _knows(self, listener: ListenerOptions, method: LoginMethod, user: str) -> bool:
        if method == "dynamic_security":
            return self._dynamic_security is not None and self._dynamic_security.authenticator.knows(user)
        path, _ = self._runtime.config.passwords_of(listener)
        return path is not None and any(each.path == Path(path) and each.knows(user) for each in self.passwords)

    def _load_passwords(self, number: int, options: ListenerOptions) -> "PasswordAuthenticator":
        from mqttlite.security.passwords import PasswordAuthenticator  # here, for scramp takes a while

        config = self._runtime.config
        path, _ = config.passwords_of(options)
        assert path is not None, "the config check requires a password file"
        try:
            passwords = PasswordAuthenticator(path, cache_s=config.password_cache_s)
        except PasswordFileError as error:
            key = "password_file" if options.password_file is None else f"listeners[{number}].password_file"
            raise ConfigError(f"{key}: {error}") from None
        self.passwords.append(passwords)
        if passwords.path not in self.password_documents:
            self.password_documents[passwords.path] = self._share_passwords(passwords.path)
        return passwords

    def _share_passwords(self, path: Path) -> SharedDocument:
        async def replace(content: bytes) -> None:
            await asyncio.to_thread(save, path, content)
            await reload(content)

        async def reload(_content: bytes) -> None:
            for each in self.passwords:
                if each.path == path:
                    await each.reload()

        taken = {each.name for each in self.password_documents.values()}
        base = f"passwords.{_NOT_IN_NAMES.sub('_', path.stem)}"
        names = (base if number == 1 else f"{base}={number}" for number in count(1))
        name = next(each for each in names if each not in taken)
        return SharedDocument(name, partial(check, path), replace, path=path, lock=asyncio.Lock(), reload=reload)

    def _load_tokens(self) -> "TokenAuthenticator | None":
        options = self._runtime.config.jwt
        if options is None:
            return None
        from mqttlite.security.tokens import TokenAuthenticator  # here, for cryptography takes a while

        try:
            return TokenAuthenticator(options, loop_time=self._runtime.clock)
        except TokenConfigError as error:
            raise ConfigError(f"jwt.{error.option}: {error}") from None

    def _load_http(self) -> HttpAuthenticator | None:
        options = self._runtime.config.http_auth
        try:
            return None if options is None else HttpAuthenticator(options, loop_time=self._runtime.clock)
        except TlsConfigError as error:
            raise ConfigError(f"http_auth.ca_file: {error}") from None
