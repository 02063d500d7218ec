"""How each listener would treat a user, as far as known without credentials."""

from collections.abc import Callable, Iterator

from mqttlite.config.login_methods import LoginMethod
from mqttlite.config.options import Config, ListenerOptions

_ASKED = {"jwt": "a token", "http": "what the server of http_auth says", "certificate": "a client certificate"}


def logins(
    config: Config, user: str | None, knows: Callable[[ListenerOptions, LoginMethod, str], bool]
) -> Iterator[str]:
    """A sentence for each listener. `knows` says whether a login method knows the user."""
    for name, listener in zip(config.listener_names(), config.listeners, strict=True):
        yield f"{name}: {_sentence(config, listener, user, knows)}"


def _sentence(
    config: Config,
    listener: ListenerOptions,
    user: str | None,
    knows: Callable[[ListenerOptions, LoginMethod, str], bool],
) -> str:
    methods = config.login_methods(listener)
    _, lets_anonymous_in = config.passwords_of(listener)
    if user is None:
        return "anonymous clients may connect" if config.lets_anybody_in(listener) else "anonymous clients are refused"
    if not methods:
        return "everybody may connect, and nobody is asked for a password"
    for method in methods:
        if method not in _ASKED and knows(listener, method, user):
            source = "the password file" if method == "password" else "dynamic security"
            return f"user {user} is in {source}: the password decides"
    open_ways = [_ASKED[method] for method in methods if method in _ASKED]
    if open_ways:
        return f"user {user} may connect with {' or '.join(open_ways)}"
    return f"user {user} is unknown, and refused" + (", anonymous clients are not" if lets_anonymous_in else "")
