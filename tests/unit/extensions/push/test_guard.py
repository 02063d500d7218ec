"""No request goes to an address that is none of an endpoint: not by how a URL is written, nor by what a name turns out
to be. What the operator allows by name or network may be private, and nothing more."""

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from mqttlite.extensions.push.endpoint import Endpoint
from mqttlite.extensions.push.guard import MAX_RESOLVING, AddressDenied, Guard, _is_own
from mqttlite.extensions.push.options import PushOptions
from mqttlite.extensions.push.results import DENIED
from mqttlite.extensions.queues.errors import PushRefused
from mqttlite.extensions.queues.push_target import PushTarget
from tests.support.device import until

DATA = Path(__file__).resolve().parents[3] / "data" / "push"


def listed(name: str) -> list[str]:
    """The lines of a list, without comments."""
    lines = (DATA / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


WRITTEN = [*listed("urls_refused"), "", " https://h.example", "https://h.example/a b", "https://h.example/\r\nHost: x"]
RESOLVED = listed("addresses_denied")
PUBLIC = listed("addresses_public")

NAME = PushTarget(url="https://hooks.example/in")


def info(address: str, port: int = 443) -> tuple[Any, ...]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    where = (address, port) if family == socket.AF_INET else (address, port, 0, 0)
    return family, socket.SOCK_STREAM, 6, "", where


def check(url: str, **options: Any) -> None:
    Guard(PushOptions(**options)).check(PushTarget(url=url))


def test_the_list_is_long_enough_to_mean_something() -> None:
    assert len(set(WRITTEN)) + len(RESOLVED) > 200


def test_no_url_of_the_list_is_taken_as_it_is_written() -> None:
    taken = []
    for url in WRITTEN:
        try:
            check(url)
        except ValueError:
            continue
        taken.append(url)
    assert taken == []


def test_no_address_of_the_list_gets_a_socket() -> None:
    guard = Guard(PushOptions())
    for address in RESOLVED:
        with pytest.raises(AddressDenied):
            guard.open_socket(NAME.target, info(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_gets_a_socket(address: str) -> None:
    guard = Guard(PushOptions())
    guard.open_socket(NAME.target, info(address)).close()
    host = f"[{address}]" if ":" in address else address
    guard.check(PushTarget(url=f"https://{host}/"))


async def test_a_name_is_denied_if_one_of_its_addresses_is() -> None:
    guard = Guard(PushOptions(), lambda host, port: [info("8.8.8.8", port), info("10.0.0.1", port)])
    with pytest.raises(AddressDenied, match=r"hooks\.example: 10\.0\.0\.1 is a private or reserved address"):
        await guard.addresses(NAME.target, 443, socket.AF_UNSPEC)


async def test_the_addresses_of_a_name_are_given_as_they_were_checked() -> None:
    guard = Guard(PushOptions(), lambda host, port: [info("8.8.8.8", port), info("2a00::1", port)])
    found = await guard.addresses(NAME.target, 443, socket.AF_UNSPEC)
    assert [(each["hostname"], each["host"], each["port"]) for each in found] == [
        ("hooks.example", "8.8.8.8", 443),
        ("hooks.example", "2a00::1", 443),
    ]
    with pytest.raises(OSError, match="has no address"):
        await Guard(PushOptions(), lambda host, port: []).addresses(NAME.target, 443, socket.AF_UNSPEC)


ALLOWED = PushOptions(
    allowed_hosts=("10.1.2.3", "db", "localhost", "::1"), allowed_networks=("192.168.7.0/24", "fd00:1::/64")
)


@pytest.mark.parametrize(
    "url", ["http://10.1.2.3:25/x", "http://db", "http://localhost:8080", "https://[::1]:9", "https://192.168.7.9"]
)
def test_an_operator_can_allow_a_private_endpoint(url: str) -> None:
    guard = Guard(ALLOWED)
    guard.check(PushTarget(url=url))


def test_a_name_that_is_allowed_may_have_a_private_address_and_no_other_name_may() -> None:
    guard = Guard(ALLOWED)
    named = PushTarget(url="http://db/").target
    guard.open_socket(named, info("10.9.9.9")).close()
    guard.open_socket(NAME.target, info("192.168.7.1")).close()
    guard.open_socket(NAME.target, info("fd00:1::7")).close()
    for address in ("10.9.9.9", "192.168.8.1", "127.0.0.1", "fd00:2::7"):
        with pytest.raises(AddressDenied):
            guard.open_socket(NAME.target, info(address))


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "fd00:ec2::254", "168.63.129.16", "192.80.8.124", "0.0.0.0", "::ffff:10.0.0.1", "224.0.0.1"],
)
def test_nothing_allows_metadata_and_addresses_in_disguise(address: str) -> None:
    allowed = PushOptions(allowed_hosts=("db", address), allowed_networks=("169.254.0.0/16", "fd00::/8", "10.0.0.0/8"))
    guard = Guard(allowed)
    with pytest.raises(AddressDenied):
        guard.open_socket(PushTarget(url="http://db").target, info(address))
    with pytest.raises(PushRefused):
        guard.check(PushTarget(url=f"https://{f'[{address}]' if ':' in address else address}/"))


def test_a_public_address_of_this_machine_has_to_be_allowed() -> None:
    """Behind a firewall, there may be services that are for this machine alone."""
    own = {"8.8.8.8", "2a00::1"}
    for address in own:
        with pytest.raises(AddressDenied, match=f"hooks.example: {address} is an address of this machine"):
            Guard(PushOptions(), is_own=own.__contains__).open_socket(NAME.target, info(address))
        for options in ({"allowed_hosts": ("hooks.example",)}, {"allowed_networks": (address,)}):
            Guard(PushOptions(**options), is_own=own.__contains__).open_socket(NAME.target, info(address)).close()
    assert [_is_own(address) for address in ("127.0.0.1", "192.0.2.1", "2001:db8::1")] == [True, False, False]


async def test_a_name_that_turns_to_another_address_is_asked_for_again_and_denied() -> None:
    addresses = ["127.0.0.1", "169.254.169.254"]
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    guard = Guard(PushOptions(allowed_hosts=("hooks.example",)), lambda host, port: [info(addresses.pop(0), port)])
    results = []
    for _ in range(2):  # each endpoint asks for the addresses, as one does whose answer is too old
        endpoint = Endpoint(PushTarget(url=f"http://hooks.example:{port}/in").target, guard, None)
        results.append(await endpoint.post(b"", {}, 60.0))
        await endpoint.close()
    server.close()
    await server.wait_closed()
    assert ([each.kind for each in results], len(asked), addresses) == (["2xx", DENIED], 1, [])
    assert results[1].detail == "hooks.example: 169.254.169.254 is where clouds keep credentials"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://h.example", "http:// is allowed to hosts in push.allowed_hosts alone; write https://"),
        ("https://h.example:25/", "the port 25 is another service's: 80, 443 and those from 1024 on may be"),
        ("https://10.0.0.1/?token=x", "10.0.0.1 is a private or reserved address; push.allowed_hosts and "),
        ("https://db", "db is a name of a private network: push.allowed_hosts can allow it"),
        (
            "https://u:p@h.example?x",
            "it has a user before the host: the endpoint knows its requests by their signature",
        ),
        ("https://0x7f.1", "it has an address in an unusual form: write four decimal numbers, as in 192.0.2.7"),
        ("https://bücher.example", "it has a character that is no visible ASCII; write names in their xn-- form, "),
    ],
)
def test_the_answer_says_what_is_wrong_with_a_url(url: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"push\.url") as error:
        check(url)
    assert str(error.value).startswith(f"push.url is {url.partition('?')[0].rstrip('/')!r}: {sentence}")


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://Hooks.Example", "https://hooks.example/"),
        ("HTTPS://hooks.example:443/a%2Fb?c=d&e=%20", "https://hooks.example/a%2Fb?c=d&e=%20"),
        ("https://hooks.example:8443?x=1", "https://hooks.example:8443/?x=1"),
        ("https://[2A00:0:0::1]:8443/@x:y", "https://[2a00::1]:8443/@x:y"),
        ("https://xn--bcher-kva.example/_x", "https://xn--bcher-kva.example/_x"),
    ],
)
def test_a_request_goes_to_what_the_url_says(url: str, sent: str) -> None:
    assert PushTarget(url=url).target.url == sent
    check(url)


PARTS = "https:// http:// h.example 127.0.0.1 [::1] 2a00::1 @ : 443 / \\ ? # % . x 0x7f １ 。"
MADE_OF_PARTS = st.lists(st.sampled_from(PARTS.split(" ")), max_size=8).map("".join)


@given(st.text(max_size=30) | MADE_OF_PARTS)
@example("https://h.example:443/a%2Fb?c=d")
@example("https://[2a00::1]:8443/")
@example("https://h.example/a?")
@example("https://h.example??")
def test_a_url_that_is_taken_has_one_meaning(text: str) -> None:
    """Python, and the library that sends the requests, find the same host and port in what is sent."""
    try:
        target = PushTarget(url=text).target
    except ValueError:
        return
    parts, url = urlsplit(target.url), URL(target.url, encoded=True)
    assert (parts.hostname, url.host) == (target.host, target.host)
    assert (parts.port or {"http": 80, "https": 443}[parts.scheme], url.port) == (target.port, target.port)
    assert (parts.username, url.user, parts.fragment, url.fragment) == (None, None, "", "")
    path, _, query = target.path.partition("?")
    assert url.raw_path_qs == (f"{path}?{query}" if query else path)


@pytest.mark.parametrize(
    "options",
    [
        {"allowed_hosts": ("https://db",)},
        {"allowed_hosts": ("DB",)},
        {"allowed_hosts": ("db.",)},
        {"allowed_hosts": ("*.db",)},
        {"allowed_hosts": ("",)},
        {"allowed_networks": ("0.0.0.0/0",)},
        {"allowed_networks": ("::/0",)},
        {"allowed_networks": ("::ffff:0:0/96",)},
        {"allowed_networks": ("10.0.0.1/8",)},
        {"allowed_networks": ("db",)},
        {"allowed_hosts": tuple(f"h{number}" for number in range(1_001))},
    ],
)
def test_options_that_allow_everything_or_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="allowed_"):
        PushOptions(**options)


@pytest.mark.parametrize(
    "fields",
    [
        {"secret": "x"},
        {"secret": "whsec_eA=="},
        {"secret": "whsec_!" * 20},
        {"previous_secret": "whsec_" + "A" * 44},
        {"max_requests": 0},
        {"max_requests": 1_001},
        {"url": "https://hooks.example/" + "x" * 2_048},
    ],
)
def test_a_target_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"push\."):
        PushTarget(**{"url": "https://hooks.example", **fields})


async def test_no_more_names_are_looked_up_at_a_time_than_there_is_room_for() -> None:
    released, lock, looking, most = threading.Event(), threading.Lock(), 0, 0

    def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
        nonlocal looking, most
        with lock:
            looking += 1
            most = max(most, looking)
        released.wait(60)
        with lock:
            looking -= 1
        return [info("8.8.8.8", port)]

    guard = Guard(PushOptions(), resolve)
    asked = [asyncio.create_task(guard.addresses(NAME.target, 443, socket.AF_UNSPEC)) for _ in range(40)]
    await until(lambda: looking == MAX_RESOLVING)
    for task in asked[:10]:
        task.cancel()  # their threads go on, and have their room
    await asyncio.sleep(0.05)
    released.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(each, list) for each in found) == 30
    assert most == MAX_RESOLVING
