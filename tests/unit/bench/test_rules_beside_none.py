"""What `bench rules` compares: two brokers for the same loads, and what their figures are worth."""

from pathlib import Path

import pytest

from bench import entrants, rules
from bench.cases import CASES
from bench.measure import Result
from mqttlite.config import load_config
from mqttlite.security import acl_file
from mqttlite.security.rules import Rules

CASE = CASES["stream-q0-16B-x1"]


@pytest.mark.long
def test_the_rules_allow_what_the_loads_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrants, "authority", lambda home: ("cert", "key"))
    without, with_rules = rules.specs(tmp_path, tmp_path)
    assert "--config" not in without.command
    config = load_config(tmp_path / "rules.toml")
    assert str(tmp_path / "rules.toml") in with_rules.command
    assert config.acl_file is not None
    acl = acl_file.load(config.acl_file)
    assert (len(acl), len(acl.users)) == (rules.USERS * rules.RULES_OF_A_USER, rules.USERS)
    found = Rules(acl)
    for user in ("user0", f"user{rules.USERS - 1}"):
        role = found.role_of("c", user)
        for load in rules.LOADS:
            assert found.may_publish(role, f"{load}/7/data".encode())
            assert found.may_receive(role, f"{load}/7/data".encode())
        assert not found.may_publish(role, b"other")
    assert config.quotas is not None
    assert config.quotas.to_user_bytes_per_s > 0


def results(rate_with: float, lost: float = 0.0) -> list[Result]:
    figures = {"received": 1e6, "broker_cpu_s": 1.0, "lost": 0.0}
    return [
        Result(name, CASE.name, number, "", "", {**figures, "recv_per_s": rate, "lost": lost})
        for number, scale in enumerate((1.0, 5.0, 0.2))
        for name, rate in ((rules.WITHOUT, 1e6 * scale), (rules.WITH, rate_with * scale))
    ]


@pytest.mark.parametrize(
    ("found", "code", "told"),
    [
        (results(0.91e6), 0, "all bounds are kept"),
        (results(0.89e6), 1, f"broken: {CASE.name}: 11% fewer deliveries a second"),
        (results(1e6, lost=2.0), 1, f"broken: {CASE.name}: 6 messages were lost"),
        ([Result(rules.WITH, CASE.name, 0, "", "", {}, error="gone")], 1, f"broken: {CASE.name}: with: gone"),
    ],
    ids=["kept", "slower", "lost", "failed"],
)
def test_each_round_is_compared_with_itself(
    found: list[Result], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rules.tell([CASE], found) == code
    assert told in capsys.readouterr().out
