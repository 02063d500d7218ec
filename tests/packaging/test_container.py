"""The container: its Dockerfile and its compose file, as far as they can be checked without building an image."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from mqttlite.cli.main import main
from mqttlite.config import load_config
from mqttlite.config.data_dir import default_data_dir
from tests.test_architecture import ROOT

FOLDER = ROOT / "packaging" / "docker"
DOCKERFILE = FOLDER / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, with continued lines joined."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text(encoding="utf-8")).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def last(name: str) -> str:
    """The one in force."""
    return [rest for word, rest in instructions() if word == name][-1]


def service(name: str = "compose.yaml") -> dict[str, Any]:
    compose = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    found: dict[str, Any] = compose["services"]["broker"]
    return found


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="hadolint is installed on Linux only")
def test_hadolint_finds_nothing_wrong() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_built_from_files_that_exist() -> None:
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert {name for name in kept if not (ROOT / name).exists()} == set()
    copied = [rest.split()[0] for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    assert {name for name in copied if name != "."} <= kept
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE", "mqttlite", "spark_analytics"} <= kept


def test_the_image_runs_as_nobody_and_starts_the_broker() -> None:
    assert last("USER") == "65534:65534"
    assert json.loads(last("ENTRYPOINT")) == ["mqttlite"]
    command = json.loads(last("CMD"))
    assert command == ["serve", "--config", "/etc/mqttlite/mqttlite.toml"]
    assert command[0] in main.list_commands(click.Context(main))
    assert ("COPY", "packaging/docker/mqttlite.toml /etc/mqttlite/mqttlite.toml") in instructions()


def test_the_configuration_serves_what_the_health_check_asks() -> None:
    config = load_config(str(FOLDER / "mqttlite.toml"))
    assert [(each.host, each.port) for each in config.listeners] == [("0.0.0.0", 1883)]
    assert config.metrics is not None
    assert (config.metrics.host, config.metrics.port) == ("127.0.0.1", 9883), "where `mqttlite health` asks"
    assert last("HEALTHCHECK").endswith('CMD ["mqttlite", "health"]')
    assert {"1883", "9883"} <= set(last("EXPOSE").split())


def test_the_compose_file_restricts_the_container() -> None:
    broker = service()
    assert broker["read_only"] is True
    assert broker["cap_drop"] == ["ALL"]
    assert broker["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"\$\{\w+:-65534\}:\$\{\w+:-65534\}", broker["user"])
    assert broker["ports"] == ["127.0.0.1:1883:1883"], "on this machine only"
    assert broker["healthcheck"]["test"] == ["CMD", "mqttlite", "health"]
    assert (FOLDER / broker["build"]["context"] / broker["build"]["dockerfile"]).samefile(DOCKERFILE)


def test_the_compose_file_mounts_what_the_image_uses() -> None:
    mounts = dict(volume.split(":")[:2] for volume in service()["volumes"])
    assert (FOLDER / "mqttlite.toml").samefile(FOLDER / next(iter(mounts)))
    assert list(mounts.values()) == ["/etc/mqttlite/mqttlite.toml", last("WORKDIR")]


def test_the_data_directory_is_in_the_volume() -> None:
    (folder,) = re.findall(r"\bSTATE_DIRECTORY=(\S+)", last("ENV"))
    assert default_data_dir({"STATE_DIRECTORY": folder}) == Path(last("VOLUME"))
    assert last("VOLUME") == last("WORKDIR")
    assert load_config(str(FOLDER / "mqttlite.toml")).data_dir is None, "the image says where it is"


def test_a_machine_of_a_cluster_is_restricted_as_one_broker_and_has_what_it_needs() -> None:
    one, machine = service(), service("cluster.yaml")
    its_own = {"image", "build", "ports", "network_mode", "healthcheck"}
    assert {key: machine[key] for key in machine.keys() - its_own} == {key: one[key] for key in one.keys() - its_own}
    assert machine["network_mode"] == "host"
    assert "ports" not in machine, "on the network of its host none are published"
    build = machine["build"]
    assert {key: build[key] for key in ("context", "dockerfile")} == one["build"]
    assert set(build["args"]) == {rest.partition("=")[0] for word, rest in instructions() if word == "ARG"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(build["args"]["EXTRAS"].split(",")) <= set(project["project"]["optional-dependencies"])
    assert build["args"]["PACKAGES"] in {each.partition(">")[0] for each in project["dependency-groups"]["bench"]}


def test_the_health_check_of_a_machine_asks_what_one_that_follows_answers() -> None:
    command = service("cluster.yaml")["healthcheck"]["test"]
    assert command[:3] == ["CMD", "python", "-c"]
    asked = ast.parse(command[3])
    assert "http://127.0.0.1:9883/healthz" in {each.value for each in ast.walk(asked) if isinstance(each, ast.Constant)}
    told = (ROOT / "docs" / "howto" / "run-three-machines.md").read_text(encoding="utf-8")
    assert "answer `/healthz` with 200" in told
    assert "let `[metrics]` have the port 9883" in told
