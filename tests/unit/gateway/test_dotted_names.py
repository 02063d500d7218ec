"""Topics in dotted notation, which requests may have."""

import pytest

from mqttlite.gateway.dotted_names import is_dotted, of_dotted
from mqttlite.gateway.problems import Problem
from tests.support.gateway import GatewayUnderTest


@pytest.mark.parametrize(
    ("dotted", "name"),
    [
        ("orders.placed", "orders/placed"),
        ("orders", "orders"),
        ("orders.*.eu", "orders/+/eu"),
        ("orders.>", "orders/#"),
        ("orders.#", "orders/#"),
        ("a*.b", "a*/b"),
        ("$SYS.broker.version", "$SYS/broker/version"),
    ],
)
def test_a_dotted_name_has_one_meaning(dotted: str, name: str) -> None:
    assert of_dotted(dotted) == name


@pytest.mark.parametrize("name", ["", ".", "a..b", ".a", "a.", "a/b", "a.+"])
def test_a_name_with_empty_parts_slashes_or_wildcards_is_refused(name: str) -> None:
    with pytest.raises(Problem):
        of_dotted(name)


def test_the_parameter_is_true_or_false() -> None:
    assert is_dotted({"dotted": ["True"]})
    assert is_dotted({"dotted": ["1"]})
    assert not is_dotted({"dotted": ["false"]})
    assert not is_dotted({})
    with pytest.raises(Problem, match="write true or false"):
        is_dotted({"dotted": ["yes"]})


async def test_a_message_is_published_and_read_back_by_its_dotted_name(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    answer = await client.put("/topics/orders.placed?dotted=true&retain=true&qos=1", content=b"x")
    assert answer.status_code == 200, answer.text
    assert (await client.get("/topics/orders/placed")).content == b"x"
    assert (await client.get("/topics/orders.placed?dotted=1")).content == b"x"
    assert (await client.get("/topics/orders.placed")).status_code == 404


async def test_a_dotted_wildcard_names_no_topic(gateway: GatewayUnderTest) -> None:
    answer = await gateway.client().put("/topics/orders.*?dotted=true", content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_topic")


async def test_a_request_goes_to_a_dotted_name(gateway: GatewayUnderTest) -> None:
    answer = await gateway.client().post("/api/v1/requests/calc.sum?dotted=true", content=b"1")
    assert answer.status_code == 404
    assert "'calc/sum'" in answer.json()["detail"]
