"""Who is measured: our variants, and the brokers of others that are installed."""

import os
import shutil
from pathlib import Path

import pytest

from bench import durable, entrants, native
from bench.__main__ import main
from bench.results import load
from mqttlite.config import load_config

ROOT = Path(__file__).resolve().parents[3]


def install(name: str, folder: Path) -> Path:
    """A program of that name, and nothing else on PATH."""
    program = folder / name
    program.write_text("")
    program.chmod(0o755)
    return program


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / "certs").mkdir(parents=True)  # so that none are made
    return folder


def test_mosquitto_gets_a_configuration_of_its_own(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program = install("mosquitto", tmp_path)
    spec = entrants.mosquitto(home)
    assert spec is not None
    assert spec.command == (str(program), "-c", str(home / "mosquitto.conf"))
    assert (home / "mosquitto.conf").read_text().splitlines() == [
        f"listener {spec.port} 127.0.0.1",
        "allow_anonymous true",
        "persistence false",
        "log_dest none",
        "set_tcp_nodelay true",
        f"listener {spec.tls_port} 127.0.0.1",
        f"certfile {home}/certs/server.crt",
        f"keyfile {home}/certs/server.key",
    ]


def test_mosquitto_stays_root_where_it_could_not_read_the_key_otherwise(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    install("mosquitto", tmp_path)
    assert entrants.mosquitto(home) is not None
    assert (home / "mosquitto.conf").read_text().startswith("user root\n")


def test_a_broker_that_is_not_installed_does_not_join(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    install("amqtt", tmp_path)
    assert "amqtt" in [spec.name for spec in entrants.peers(home)]
    (tmp_path / "amqtt").unlink()
    assert "amqtt" not in [spec.name for spec in entrants.peers(home)]


def test_without_a_compiled_build_its_variants_are_told_to_be_absent(home: Path) -> None:
    told: list[str] = []
    assert [spec.name for spec in entrants.ours(home, None, told.append)] == ["mqttlite-pure", "mqttlite-memory"]
    assert told == ["mqttlite: there is no compiled build"]
    all_three = ["mqttlite-pure", "mqttlite", "mqttlite-memory"]
    assert [spec.name for spec in entrants.ours(home, home, told.append)] == all_three


def test_the_compiled_build_is_made_again_when_the_source_changes_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(native, "_compile", made.append)
    project, build = tmp_path / "project", tmp_path / "build"
    (project / "mqttlite").mkdir(parents=True)
    for name in (*native.PROJECT, "mqttlite/code.py"):
        (project / name).write_text("")
    first = native.tree(project, build)
    assert native.tree(project, build) == first
    (project / "mqttlite" / "code.py").write_text("new = True\n")
    second = native.tree(project, build)
    assert (second / "mqttlite" / "code.py").read_text() == "new = True\n"
    assert made == [first, second]
    assert not first.exists()


def test_files_of_a_started_broker_are_in_the_temporary_folder(home: Path) -> None:
    spec = entrants.serving("mine", home, {})
    assert spec.data == home / "mine.data"
    assert spec.command[spec.command.index("--data-dir") + 1] == str(spec.data)


def test_the_durable_group_names_those_that_are_absent(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "nats", lambda home: None)
    monkeypatch.setattr(durable, "find_mosquitto", lambda: None)
    told: list[str] = []
    memory = durable.specs(home, None, told.append)[-1]
    assert told == [
        "mqttlite: there is no compiled build",
        "mosquitto: it is not installed",
        "mosquitto-sqlite: it is not installed",
        "nats: it is not installed",
    ]
    assert (memory.name, memory.data) == ("mqttlite-memory", None)
    assert "--data-dir" not in memory.command


def test_the_durable_group_has_queues_without_a_limit(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    install("mosquitto", tmp_path)
    install(durable.PLUGIN, tmp_path)
    program = install("nats-server", tmp_path)
    pure, *_, mosquitto, safe, nats = durable.specs(home, home, pytest.fail)
    assert pure.command[-2:] == ("--config", str(home / "queues.toml"))
    assert load_config(str(home / "queues.toml")).limits.max_queued_messages == 10_000_000
    assert "max_queued_messages 0" in (home / "mosquitto-durable.conf").read_text()
    assert f"persistence_location {mosquitto.data}/" in (home / "mosquitto-durable.conf").read_text()
    lines = (home / "mosquitto-sqlite-durable.conf").read_text().splitlines()
    assert f"plugin {tmp_path / durable.PLUGIN}" in lines
    assert f"persistence_location {safe.data}/" in lines
    assert nats.command == (str(program), "-c", str(home / "nats.conf"))
    assert f'store_dir: "{nats.data}", sync_interval: always' in (home / "nats.conf").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_broker_of_ours_is_started_and_measured_over_tcp_and_tls(tmp_path: Path) -> None:
    out, page = tmp_path / "kept.jsonl", tmp_path / "page.md"
    command = ["all", "--cases", "pingpong,tls-resume,mix-churn", "--quick", "--wait", "0", "--out", str(out)]
    for name in entrants.PEERS:
        command += ["--without", name]
    assert main(command) == 0
    results = {result.case: result.figures for result in load(out).results}
    assert results["pingpong"]["lost"] == 0
    assert results["mix-churn"]["lost"] == 0
    assert results["mix-churn"]["churn_per_s"] > 10
    if "tls-resume-1000" in results:  # where the load generator can
        assert results["tls-resume-1000"]["resumed"] == 500
    assert main(["show", str(out), "--page", str(page)]) == 0
    assert "one message at a time" in page.read_text()
    assert "<svg " in next((tmp_path / "page").glob("*.svg")).read_text()
