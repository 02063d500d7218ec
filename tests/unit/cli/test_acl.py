"""`mqttlite acl test` and `mqttlite check` at the terminal: what they print and how they end."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings

from mqttlite.cli.main import main
from mqttlite.security.acl_file import AclFile, load
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.security.rule_tree import DENY, READ, Rule
from mqttlite.security.rules import Rules
from mqttlite.security.topic_file import save
from mqttlite.security.topic_records import TopicRecord
from tests.properties.test_rules import WORLD, acl_files

ACL = """\
topic read news/#
user ann
topic readwrite plant/#
topic deny plant/secret/#
group staff
topic read staff/#
pattern write own/%c
"""
CONFIG = """\
acl_file = "{acl}"
password_file = "{users}"
allow_anonymous = true
groups = {{ staff = ["ann"] }}

[[listeners]]
port = 0

[sys]
publishers = ["ann"]

[[topic_policies]]
prefix = "plant/hall"
access = "PRIVATE"
groups = ["staff"]
"""


@pytest.fixture
def acl(tmp_path: Path) -> Path:
    path = tmp_path / "acl.conf"
    path.write_text(ACL)
    return path


@pytest.fixture
def config(tmp_path: Path, acl: Path) -> Path:
    users = tmp_path / "users"
    set_user(users, "ann", keys_of("secret", b"0123456789abcdef", 4_096), create=True)
    path = tmp_path / "broker.toml"
    path.write_text(CONFIG.format(acl=acl, users=users))
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["read", "news/x"], 0, "allowed by {acl}:1 (anonymous clients)"),
        (["write", "news/x"], 1, "denied by default: {acl} has no rule that allows it (anonymous clients)"),
        (["--user", "ann", "write", "plant/x"], 0, "allowed by {acl}:3 (user ann)"),
        (["--user", "ann", "write", "plant/secret"], 1, "denied by {acl}:4 (user ann)"),
        (["-u", "ann", "subscribe", "plant/secret/#"], 1, "denied by {acl}:4 (user ann)"),
        (["-u", "ann", "subscribe", "$share/g/#"], 0, "allowed by {acl}:3 (user ann)"),
        (["-u", "eve", "-g", "staff", "read", "staff/x"], 0, "allowed by {acl}:6 (group staff)"),
        (["-i", "c1", "write", "own/c1"], 0, "allowed by {acl}:7 (pattern)"),
        (["-i", "#", "write", "own/c1"], 1, "denied by a safeguard: a client identifier with + or # in it gets"),
        (["write", "$SYS/x"], 1, "denied by default"),
    ],
)
def test_the_rule_that_decides_is_printed(acl: Path, arguments: list[str], code: int, said: str) -> None:
    done = run("acl", "test", "--acl-file", str(acl), *arguments)
    assert (done.exit_code, done.stderr) == (code, "")
    assert done.stdout.startswith(said.format(acl=acl))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["-u", "ann", "read", "staff/x"], 0, "(group staff)"),
        (["-u", "ann", "write", "plant/hall/x"], 0, ":3 (user ann)"),
        (["-u", "eve", "-g", "other", "write", "plant/hall/x"], 1, "denied by default"),
        (["-u", "ann", "write", "$SYS/analytics/x"], 0, "allowed by sys.publishers"),
        (["-u", "ann", "write", "$SYS/other"], 1, "denied by default"),
    ],
)
def test_groups_and_policies_of_a_configuration_count(config: Path, arguments: list[str], code: int, said: str) -> None:
    done = run("acl", "test", "-c", str(config), *arguments)
    assert done.exit_code == code
    assert said in done.stdout


def test_a_verdict_is_an_object_in_json(acl: Path) -> None:
    asked = ("acl", "test", "--acl-file", str(acl), "--json", "--user", "ann")
    assert json.loads(run(*asked, "read", "plant/secret").stdout) == {
        "allowed": False,
        "action": "read",
        "topic": "plant/secret",
        "user": "ann",
        "client_id": "test",
        "file": str(acl),
        "line": 4,
        "reason": f"{acl}:4 (user ann)",
    }
    found = json.loads(run(*asked, "read", "other").stdout)
    assert (found["allowed"], found["file"], found["line"]) == (False, None, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["read", "a"], "Which rules?"),
        (["--acl-file", "{acl}", "read", "a/#"], "contains a wildcard"),
        (["--acl-file", "{acl}", "subscribe", "a/#/b"], "is not a whole last level"),
        (["--acl-file", "{acl}", "subscribe", "$share/a"], "no filter behind its share name"),
        (["--acl-file", "{acl}.missing", "read", "a"], "cannot be read"),
        (["-c", "{acl}", "read", "a"], "is not TOML"),
        (["--acl-file", "{acl}", "look", "a"], "'look' is not one of"),
    ],
)
def test_a_wrong_question_ends_with_2(acl: Path, arguments: list[str], said: str) -> None:
    done = run("acl", "test", *(each.format(acl=acl) for each in arguments))
    assert done.exit_code == 2
    assert said in done.stderr


def test_each_wrong_line_is_printed(acl: Path) -> None:
    acl.write_text("topik a\nuser\n")
    done = run("acl", "test", "--acl-file", str(acl), "read", "a")
    assert done.exit_code == 2
    assert f"{acl}:1: 'topik' begins no rule" in done.stderr
    assert f"{acl}:2: user without a name" in done.stderr


def written(acl: AclFile) -> str:
    """A file that says the same; patterns have a section of their own."""

    def lines(word: str, rules: list[Rule]) -> list[str]:
        names = {DENY: "deny", READ: "read", 2: "write", 3: "readwrite"}
        return [f"{word} {names[rule.access]} {rule.topic_filter.decode()}" for rule in rules]

    text = lines("topic", acl.anonymous)
    for word, sections in (("user", acl.users), ("group", acl.groups)):
        for name, rules in sections.items():
            text += [f"{word} {name}", *lines("topic", rules)]
    return "\n".join([*text, *lines("pattern", acl.patterns)])


@pytest.mark.slow
@given(acl_files())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_prints_the_answer_of_the_rules(tmp_path: Path, acl: AclFile) -> None:
    path = tmp_path / "random.conf"
    path.write_text(written(acl))
    rules = Rules(load(path))
    for username in (None, "ann"):
        role = rules.role_of("c1", username)
        for topic in WORLD[:3]:
            user = () if username is None else ("-u", username)
            done = run("acl", "test", "--acl-file", str(path), "-i", "c1", *user, "read", topic.decode())
            assert done.exit_code == (0 if rules.may_receive(role, topic) else 1)
            assert done.stdout.strip() == rules.reason(role, "receive", topic)


# ── check ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_check_lists_the_permissions_of_each_user(config: Path, acl: Path) -> None:
    done = run("check", str(config))
    assert done.exit_code == 0, done.stderr
    assert "0 warnings." in done.stderr
    for line in (
        f"only what {acl} allows, and read $SYS where it does not deny that",
        "anonymous clients: read news/#",
        "user ann: read and write plant/#; not plant/secret/#",
        "group staff: read staff/#",
        "patterns: write own/%c",
        "topics plant/hall/#: only members publish and subscribe (members: group staff)",
        "where there is a policy, it and the ACL file must both allow",
    ):
        assert f"  {line}\n" in done.stdout


def test_check_lists_the_first_of_many_or_all(config: Path, acl: Path) -> None:
    rules = "\n".join(f"topic read t/{number}" for number in range(7))
    acl.write_text("\n".join(f"user u{number}\n{rules}" for number in range(22)))
    done = run("check", str(config))
    assert "user u0: read t/0, t/1, t/2, t/3, t/4 and 2 more\n" in done.stdout
    assert "and 2 more sections: ask with 'mqttlite acl test'\n" in done.stdout
    done = run("check", "--all", str(config))
    assert "user u21: read t/0, t/1, t/2, t/3, t/4, t/5, t/6\n" in done.stdout


def test_acknowledging_to_a_queue_is_a_right(config: Path) -> None:
    done = run("acl", "test", "-c", str(config), "write", "$queue/q/$ack")
    assert (done.exit_code, "denied by default" in done.stdout) == (1, True)
    assert run("acl", "test", "-c", str(config), "write", "$queue/q/$seek/ops/answers").exit_code == 1
    assert run("acl", "test", "-c", str(config), "write", "$queue/q/other").exit_code == 2


def test_to_make_a_queue_takes_a_rule(tmp_path: Path) -> None:
    config = tmp_path / "open.toml"
    config.write_text("")
    done = run("acl", "test", "-c", str(config), "write", "$queue/q/$create")
    assert (done.exit_code, "no rule or policy gives it" in done.stdout) == (1, True)
    assert run("acl", "test", "-c", str(config), "write", "$queue/q/$purge").exit_code == 0


def test_topics_made_over_http_count(config: Path, acl: Path, tmp_path: Path) -> None:
    config.write_text(f'data_dir = "{tmp_path}"\n' + config.read_text())
    made = TopicRecord(topic_id="1", name="plant/mine", owner="bob", permissions="PRIVATE", created_at=0.0)
    save(tmp_path / "topics.json", [made])
    done = run("check", str(config))
    assert "topics plant/mine: only members publish and subscribe (members: bob); made over HTTP\n" in done.stdout
    done = run("acl", "test", "-c", str(config), "-u", "ann", "write", "plant/mine")
    assert 'denied by the topic policy for "plant/mine" (PRIVATE)' in done.stdout
    (tmp_path / "topics.json").write_text("{")
    assert run("acl", "test", "-c", str(config), "-u", "ann", "write", "plant/mine").exit_code == 2
    done = run("check", str(config))
    assert done.exit_code == 2
    assert f"data_dir: {tmp_path / 'topics.json'} is no file of topics" in done.stderr


def test_check_warns_and_ends_with_1(config: Path, acl: Path) -> None:
    acl.write_text("topic write #\nuser ann\ntopic read a/#\ntopic read a/b\nuser bob\ntopic a\n")
    config.write_text(config.read_text().replace("port = 0", 'port = 0\nhost = "0.0.0.0"'))
    done = run("check", str(config))
    assert done.exit_code == 1
    assert f"warning: {acl}:4: a/b says nothing that line 3 does not say (user ann)" in done.stderr
    assert f"warning: {acl}:6: user bob is not in the password file" in done.stderr
    assert "anonymous clients may publish to #" in done.stderr


def test_check_says_that_user_names_are_only_claimed(config: Path) -> None:
    text = config.read_text().replace("port = 0", 'port = 0\nhost = "0.0.0.0"')
    config.write_text("\n".join(line for line in text.splitlines() if "password_file" not in line))
    done = run("check", str(config))
    assert done.exit_code == 1
    assert "the rules of users are for everyone who claims to be one" in done.stderr


def test_check_of_rules_that_reach_no_client(config: Path, acl: Path) -> None:
    config.write_text(config.read_text().replace("allow_anonymous = true", ""))
    done = run("check", str(config))
    assert done.exit_code == 1
    assert f"{acl}:1: no listener lets anonymous clients in, so these rules reach no client" in done.stderr


def test_check_of_a_wrong_configuration_ends_with_2(config: Path, acl: Path) -> None:
    acl.write_text("user\n")
    done = run("check", str(config))
    assert done.exit_code == 2
    assert f"{config}:1: acl_file: {acl}:1: user without a name; write user <name>" in done.stderr
    assert "1 problem: a broker would not start." in done.stderr


def test_check_without_rules_says_that_everything_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("[[listeners]]\nport = 0\n")
    done = run("check", str(path))
    assert "all clients may publish and subscribe everywhere, but publish below $SYS and $dlq" in done.stdout
    assert done.exit_code == 0


def test_long_lists_are_cut(config: Path, acl: Path) -> None:
    acl.write_text("".join(f"user u{n}\n" + "".join(f"topic read t{m}\n" for m in range(8)) for n in range(25)))
    done = run("check", str(config))
    assert "user u0: read t0, t1, t2, t3, t4 and 3 more\n" in done.stdout
    assert "and 5 more sections: ask with 'mqttlite acl test'" in done.stdout
