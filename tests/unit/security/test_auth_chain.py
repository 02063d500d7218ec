"""Several ways to log in: the first that knows the credentials decides."""

import logging

import pytest

from mqttlite.core.authentication import Grants, Verdict
from mqttlite.core.question import Authenticate
from mqttlite.security.auth_chain import AuthChain, FirstOf
from mqttlite.security.authenticator import Credentials, TooBusy

ANN = Credentials("c", "ann", b"pw", None, "127.0.0.1:4000", "mqtt")
NOBODY = Credentials("c", None, None, None, "127.0.0.1:4000", "mqtt")


class Says:
    """Answers always the same."""

    def __init__(self, answer: bool | Verdict | Exception | None) -> None:
        self.answer = answer
        self.asked = 0

    async def authenticate(self, credentials: Credentials) -> bool | Verdict | None:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def verdict(chain: AuthChain, credentials: Credentials = ANN) -> Verdict:
    question = Authenticate(1, credentials.client_id, credentials.username, credentials.password)
    return await chain.verdict(question, credentials)


@pytest.mark.parametrize(
    ("answers", "code", "asked"),
    [
        ([True, False], 0, 1),
        ([False, True], 0x86, 1),
        ([None, True], 0, 2),
        ([None, False], 0x86, 2),
        ([None, None], 0x86, 2),
        ([None, Verdict(0x87), True], 0x87, 2),
        ([None, TooBusy("full"), True], 0x89, 2),
        ([OSError("away"), True], 0x88, 1),
        ([Verdict(0x18), True], 0x88, 1),
        ([], 0x86, 0),
    ],
    ids=str,
)
async def test_the_first_that_knows_the_credentials_decides(
    answers: list[bool | Verdict | Exception | None], code: int, asked: int
) -> None:
    authenticators = [Says(each) for each in answers]
    assert (await verdict(AuthChain(FirstOf(authenticators)))).reason_code == code
    assert sum(each.asked for each in authenticators) == asked


async def test_a_verdict_keeps_its_facts_about_the_client() -> None:
    full = Verdict(0, None, "bob", Grants(frozenset({"staff"})))
    assert await verdict(AuthChain(FirstOf([Says(None), Says(full)]))) is full


@pytest.mark.parametrize(
    ("answer", "credentials", "allow_anonymous", "code"),
    [
        (None, NOBODY, True, 0),
        (None, NOBODY, False, 0x86),
        (False, NOBODY, True, 0x86),
        (None, ANN, True, 0x86),
        (None, Credentials("c", None, b"pw", None, "p", "mqtt"), True, 0x86),
        (None, Credentials("c", "ann", None, None, "p", "mqtt"), True, 0x86),
    ],
)
async def test_only_clients_without_credentials_are_anonymous(
    answer: bool | None, credentials: Credentials, allow_anonymous: bool, code: int
) -> None:
    chain = AuthChain(Says(answer), allow_anonymous=allow_anonymous)
    assert not chain.is_open
    assert (await verdict(chain, credentials)).reason_code == code


async def test_an_answer_that_asks_for_more_is_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    assert (await verdict(AuthChain(Says(Verdict(0x18))))).reason_code == 0x88
    assert "only an authentication method may" in caplog.text
