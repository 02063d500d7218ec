"""Files of an operator: whatever is in them, they are read, or refused with the error of their kind, and soon."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttlite.config import ConfigError
from mqttlite.config.file import load_config
from mqttlite.security import acl_file, api_keys, json_file, password_file, token_keys, token_options, topic_file
from mqttlite.security.dynamic_security import DynamicSecurityError, document
from mqttlite.security.topic_records import TopicFileError

pytestmark = pytest.mark.slow

ALGORITHMS = frozenset({"RS256", "ES256", "EdDSA", "HS256"})

Seeds = tuple[str, ...]

KINDS: dict[str, tuple[Callable[[Path], object], type[Exception], Seeds]] = {
    "configuration": (
        load_config,
        ConfigError,
        (
            'data_dir = "x"\n[[listeners]]\nport = 1883\n[http]\nroles = { admin = ["ann"] }\n[[topic_policies]]\n'
            'filter = "a/#"\n[[queues]]\nname = "q"\nfilters = ["a"]\n[quotas.client]\nmessages_per_s = 5\n',
            "a = " + "[" * 5_000 + "]" * 5_000,
            "a." * 3_000 + "b = 1",
            "x = " + "9" * 5_000,
            "x = 9999-99-99",
            "[http]\nport = 1e999",
        ),
    ),
    "ACL file": (
        lambda path: acl_file.load(str(path)),
        acl_file.AclFileError,
        (
            "user ann\ntopic read a/#\npattern readwrite %u/%c\ntopic deny b\n",
            "topic " + "a/" * 40_000,
            "pattern " + "%u" * 30_000,
            "topic readwrite " + "+/" * 300 + "#",
        ),
    ),
    "password file": (
        password_file.load,
        password_file.PasswordFileError,
        (
            "ann:$7$101$AAAA$BBBB\nbob:$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA\n",
            "a:$7$999999999999$AA$BB",
            "a:$argon2id$v=19$m=4294967295,t=4294967295,p=255$c2FsdHNhbHQ$aGFzaA",
            "a" * 100_000 + ":x",
        ),
    ),
    "dynamic security": (
        document.load,
        DynamicSecurityError,
        (
            '{"clients":[{"username":"a","password":"x","salt":"y","iterations":101,"roles":[{"rolename":"r"}]}],'
            '"roles":[{"rolename":"r","acls":[{"acltype":"publishClientSend","topic":"#","allow":true}]}],"groups":[]}',
            '{"clients":' + "[" * 5_000,
            '{"clients":[{"username":"a","iterations":1e308}]}',
            '{"clients":[{"username":"\\ud800"}]}',
        ),
    ),
    "keys of tokens": (
        lambda path: token_keys._key_set(path, path.read_bytes(), ALGORITHMS),
        token_options.TokenConfigError,
        (
            '{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"1"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},'
            '{"kty":"OKP","crv":"Ed25519","x":"AA"},{"kty":"oct","k":"AAAA"}]}',
            '{"keys":[{"kty":"RSA","n":"' + "A" * 200_000 + '","e":"AQAB"}]}',
            '{"keys":' + "[" * 9_999,
        ),
    ),
    "topics": (
        topic_file.load,
        TopicFileError,
        ('{"version":2}\n{"topic":{"topic_id":"t","name":"a","created_at":1.0}}\n{"removed":"t"}\n',),
    ),
    "API keys": (
        api_keys.load,
        api_keys.ApiKeyFileError,
        ('{"version":1,"keys":[{"id":"1","sha256":"x","role":"user","created_at":1}]}', '{"keys":' + "[" * 9_999),
    ),
}


def damaged(text: bytes, dice: random.Random) -> bytes:
    """A text with some bytes changed, removed, added or repeated."""
    found = bytearray(text)
    for _ in range(dice.randrange(8)):
        at = dice.randrange(len(found) + 1)
        match dice.randrange(4):
            case 0:
                found[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del found[at : at + dice.randrange(20)]
            case 2:
                found[at:at] = bytes(dice.choice(b'{}[]",:\\\n#=.%+/$0') for _ in range(4))
            case _:
                found[at:at] = found[at : at + dice.randrange(200)]
    return bytes(found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_read_or_refused(tmp_path: Path, kind: str) -> None:
    load, error, seeds = KINDS[kind]
    path = tmp_path / "file"
    dice = random.Random(kind)
    for number in range(300):
        text = seeds[number % len(seeds)].encode("utf-8", "surrogatepass")
        path.write_bytes(text if number < len(seeds) else damaged(text, dice))
        begun = time.process_time()
        try:
            load(path)
        except error:
            pass
        assert time.process_time() - begun < 5, path.read_bytes()[:200]


def test_json_that_is_nested_deeply_is_the_error_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b'{"version":1,"keys":' + b"[" * 100_000)
    with pytest.raises(LookupError, match="is no file of things"):
        json_file.load(path, api_keys._File, LookupError, max_bytes=1_000_000, content="things", advice="remove it")


def test_a_wrong_json_file_is_named_in_short_and_without_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"version":1,"\\u001b' + "x" * 60_000 + '":1}')
    with pytest.raises(LookupError) as caught:
        json_file.load(path, api_keys._File, LookupError, max_bytes=1_000_000, content="things", advice="remove it")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1_300
