"""How each listener would treat a user, as far as known without credentials."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from mqttlite.config.login_methods import LoginMethod
from mqttlite.config.options import Config, ListenerOptions

_ASKED = {"jwt": "a token", "http": "what the server of http_auth says", "certificate": "a client certificate"}


class Login(NamedTuple):
    """How a listener would treat a user."""

    sentence: str
    is_refused: bool


def logins(
    config: Config, user: str | None, knows: Callable[[ListenerOptions, LoginMethod, str], bool]
) -> Iterator[Login]:
    """One for each listener. `knows` says whether a login method knows the user."""
    for name, listener in zip(config.listener_names(), config.listeners, strict=True):
        sentence, is_refused = _login(config, listener, user, knows)
        yield Login(f"{name}: {sentence}", is_refused)


def _login(
    config: Config,
    listener: ListenerOptions,
    user: str | None,
    knows: Callable[[ListenerOptions, LoginMethod, str], bool],
) -> Login:
    methods = config.login_methods(listener)
    _, lets_anonymous_in = config.passwords_of(listener)
    if user is None:
        if config.lets_anybody_in(listener):
            return Login("anonymous clients may connect", is_refused=False)
        return Login("anonymous clients are refused", is_refused=True)
    if not methods:
        return Login("everybody may connect, and nobody is asked for a password", is_refused=False)
    for method in methods:
        if method not in _ASKED and knows(listener, method, user):
            source = "the password file" if method == "password" else "dynamic security"
            return Login(f"user {user} is in {source}: the password decides", is_refused=False)
    open_ways = [_ASKED[method] for method in methods if method in _ASKED]
    if open_ways:
        return Login(f"user {user} may connect with {' or '.join(open_ways)}", is_refused=False)
    but = ", anonymous clients are not" if lets_anonymous_in else ""
    return Login(f"user {user} is unknown, and refused{but}", is_refused=True)
