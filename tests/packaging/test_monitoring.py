"""The dashboard and the alerts: every metric and every label they name is one that the broker serves."""

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.http import HttpOptions
from mqttlite.config.metrics import MetricsOptions
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.extensions.routes.options import RouteOptions
from mqttlite.security.certificates import init
from mqttlite.security.tls import TlsOptions
from mqttlite.server import Broker
from tests.interop.support import tool
from tests.test_architecture import ROOT

PROMETHEUS = ROOT / "packaging" / "prometheus"
DASHBOARD = ROOT / "packaging" / "grafana" / "mqttlite.json"
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"

PROMETHEUS_LABELS = {"instance", "job", "le"}
"""What Prometheus itself adds, and the label of a histogram's buckets."""

UNUSED = {"process_virtual_memory_bytes"}
"""Metrics that are on no panel."""


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((PROMETHEUS / "rules.yml").read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def strings_at(key: str, value: object) -> Iterator[str]:
    """The texts of a key, however deep."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == key and isinstance(inner, str):
                yield inner
            yield from strings_at(key, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_at(key, inner)


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def expressions_of_the_dashboard() -> list[str]:
    return [*strings_at("expr", dashboard()), *strings_at("query", dashboard()["templating"])]


def names_in(expressions: list[str]) -> set[str]:
    """The metrics, a histogram's without the suffix of its series."""
    found = set(re.findall(r"\b(?:mqttlite|process)_\w+", " ".join(re.sub(r'"[^"]*"', "", e) for e in expressions)))
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in found}


def labels_in(expressions: list[str]) -> set[str]:
    text = " ".join(expressions)
    grouped = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", text) for label in group.split(",")}
    return grouped | set(re.findall(r'(\w+)\s*[=!]~?"', text))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all metrics that a broker serves."""
    folder = tmp_path_factory.mktemp("monitored")
    init(folder)
    tls = TlsOptions(cert_file=str(folder / "server.crt"), key_file=str(folder / "server.key"))
    config = Config(
        listeners=(ListenerOptions(port=0, tls=tls),),
        metrics=MetricsOptions(port=0),
        http=HttpOptions(port=0),
        telemetry=TelemetryOptions(directory=str(folder / "telemetry")),
        routes=(RouteOptions(name="r", filters=("a",), to="b"),),
    )

    async def scrape() -> str:
        async with Broker(config) as broker:
            assert broker.monitor is not None
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.monitor.port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(60):
                _, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            await writer.wait_closed()
            return body.decode()

    families = text_string_to_metric_families(asyncio.run(scrape()))
    return {family.name + "_total" * (family.type == "counter") for family in families}


@pytest.mark.long
def test_every_metric_of_the_alerts_exists(served: set[str]) -> None:
    used = names_in([rule["expr"] for rule in rules()])
    assert len(used) > 10
    assert used - served == set()


def test_every_metric_that_a_description_names_exists(served: set[str]) -> None:
    told = {name for rule in rules() for text in rule["annotations"].values() for name in names_in([text])}
    assert told - served == set()


def test_the_dashboard_shows_every_metric_and_no_other(served: set[str]) -> None:
    assert names_in(expressions_of_the_dashboard()) == served - UNUSED


def test_every_label_exists() -> None:
    rows = re.findall(r"(?m)^\| `(?:mqttlite|process)_\w+` \| \w+ \| ([^|]*) \|", REFERENCE.read_text(encoding="utf-8"))
    known = {label for row in rows for label in re.findall(r"`(\w+)`", row)} | PROMETHEUS_LABELS
    assert labels_in([rule["expr"] for rule in rules()]) - known == set()
    assert labels_in(expressions_of_the_dashboard()) - known == set()


def test_every_label_of_a_text_is_one_of_its_alert() -> None:
    for rule in rules():
        told = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        grouped = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
        kept = {label.strip() for group in grouped for label in group.split(",")}
        assert not kept or told <= kept, rule["alert"]


def test_each_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning"), rule
        assert rule["annotations"].keys() == {"summary", "description"}, rule


@pytest.mark.long
def test_each_alert_has_a_test() -> None:
    tests = yaml.safe_load((PROMETHEUS / "rules_test.yml").read_text(encoding="utf-8"))["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case.get("exp_alerts")}
    silent = {case["alertname"] for test in tests for case in test["alert_rule_test"] if not case.get("exp_alerts")}
    names = {rule["alert"] for rule in rules()}
    assert (fired, silent) == (names, names), "each fires once, and not before its time"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "rules.yml"],
        ["test", "rules", "rules_test.yml"],
    ],
    ids=" ".join,
)
def test_promtool_agrees(arguments: list[str]) -> None:
    done = subprocess.run(
        [tool("promtool", package="prometheus"), *arguments],
        cwd=PROMETHEUS,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_two_panels_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids))


def test_the_dashboard_asks_for_its_source_of_data() -> None:
    """None is named that another Grafana does not have."""
    sources = set(strings_at("uid", dashboard()["panels"]))
    assert sources == {"${datasource}"}
    assert dashboard()["templating"]["list"][0]["type"] == "datasource"
