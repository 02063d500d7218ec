"""What credentials tell, and to whom they do not."""

from mqttlite.security.authenticator import Authenticator, Credentials


def credentials(password: bytes | None) -> Credentials:
    return Credentials(
        client_id="c1", username="u1", password=password, identity=None, peer="127.0.0.1:40000", listener="mqtt"
    )


def test_a_password_never_shows() -> None:
    assert "hunter2" not in repr(credentials(b"hunter2"))


async def test_any_object_that_answers_is_an_authenticator() -> None:
    class OnePassword:
        async def authenticate(self, credentials: Credentials) -> bool:
            return credentials.password == b"hunter2"

    auth_chain: Authenticator = OnePassword()
    assert await auth_chain.authenticate(credentials(b"hunter2"))
    assert not await auth_chain.authenticate(credentials(None))
