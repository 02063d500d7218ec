"""The rules of a running broker: when its file is read again."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from mqttlite.files.file_version import Version, version_of
from mqttlite.security import acl_file, live_rules
from mqttlite.security.live_rules import LiveRules


def rules_of(path: Path) -> LiveRules:
    return LiveRules(str(path), (), {}, on_rules=lambda _rules: None, roles_in_use=lambda: (), max_roles=100)


async def test_a_change_is_read_once_if_a_reload_comes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "acl.conf"
    path.write_text("topic read a\n")
    rules = rules_of(path)
    looks = reads = 0
    may_end = threading.Event()

    def look(at: str | None) -> Version:
        nonlocal looks
        looks += 1
        return version_of(at)

    def load(at: str) -> acl_file.AclFile:
        nonlocal reads
        reads += 1
        assert may_end.wait(60)
        return acl_file.load(at)

    monkeypatch.setattr(live_rules, "version_of", look)
    monkeypatch.setattr(live_rules, "load", load)
    monkeypatch.setattr(live_rules, "POLL_S", 0.001)

    async def looked(more: int) -> None:
        wanted = looks + more
        async with asyncio.timeout(60):
            while looks < wanted:
                await asyncio.sleep(0.001)

    path.write_text("topic read a\ntopic read b\n")
    reload = asyncio.create_task(rules.reload())
    await looked(1)  # by the reload, which then reads
    watch = asyncio.create_task(rules.watch())
    await looked(1)  # by the watch, which then waits
    may_end.set()
    await reload
    await looked(3)
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch
    assert reads == 1
    assert rules.rules is not None
    assert rules.rules.acl is not None
    assert len(rules.rules.acl) == 2
