"""The status of several nodes as that of one broker, for `mqttlite top`.

Numbers are sums, but for times, of which the longest counts. Invariant: each client of a ranking has its `node`.
"""

from typing import Any, Final

Status = dict[str, Any]

RANKED: Final = 20
"""Clients of each ranking, as in the status of a node."""

_SUMS: Final = ("clients", "totals", "rates", "drops", "disconnects")


def joined(status: Status) -> Status:
    """The status that a node has answered, with that of the others. As it is, where the broker is alone."""
    others = {each["node"]: each["answer"] for each in status.get("others", ()) if each["status"] == 200}
    if "others" not in status:
        return status
    nodes: dict[str, Status] = dict(sorted({status["node"]: status, **others}.items()))
    each_one = list(nodes.values())
    found = {name: value for name, value in status.items() if name not in ("others", "node")}
    for section in _SUMS:
        found[section] = _sum([each[section] for each in each_one])
    found["held"] = _sum([_without_times(each["held"]) for each in each_one])
    found["held"]["oldest_unacknowledged_s"] = _longest([each["held"]["oldest_unacknowledged_s"] for each in each_one])
    found["not_ready"] = _not_ready(nodes)
    found["loop_lag_s"] = {name: _longest([each["loop_lag_s"][name] for each in each_one]) for name in _lags(each_one)}
    found["overload"] = max((each["overload"] for each in each_one), key=lambda each: (each["stage"], each["load"]))
    stores = [each["store"] for each in each_one]
    found["store"] = {
        **_sum([{name: each[name] for name in ("commits", "failures")} for each in stores]),
        "failing": any(each["failing"] for each in stores),
        "p99_s": max(each["p99_s"] for each in stores),
    }
    found["latency_s"] = _latency(each_one)
    found["top"] = {ranking: _ranked(nodes, ranking) for ranking in status["top"]}
    found["nodes"] = list(nodes)
    return found


def _without_times(held: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in held.items() if not name.endswith("_s")}


def _sum(parts: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            found[name] = found.get(name, 0) + (value or 0)
    return found


def _longest(times: list[float | None]) -> float | None:
    return max((each for each in times if each is not None), default=None)


def _lags(each_one: list[Status]) -> list[str]:
    return list(each_one[0]["loop_lag_s"])


def _not_ready(nodes: dict[str, Status]) -> str | None:
    said = [f"node {name}: {each['not_ready']}" for name, each in nodes.items() if each["not_ready"]]
    return "; ".join(said) or None


def _latency(each_one: list[Status]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for each in each_one:
        for stage, times in each["latency_s"].items():
            before = found.get(stage, times)
            found[stage] = {name: max(value, before[name]) for name, value in times.items()}
    return found


def _ranked(nodes: dict[str, Status], ranking: str) -> list[dict[str, Any]]:
    """Those of all nodes. `bytes` are told for the interval of the node that was asked."""
    found: list[dict[str, Any]] = []
    interval_s = next(iter(nodes.values()))["interval_s"]
    for name, each in nodes.items():
        scale = interval_s / (each["interval_s"] or interval_s)
        for client in each["top"].get(ranking, ()):
            moved = round(client["bytes"] * scale)
            found.append(
                {**client, "node": name, "bytes": moved, "value": moved if ranking == "bytes" else client["value"]}
            )
    return sorted(found, key=lambda client: -client["value"])[:RANKED]
