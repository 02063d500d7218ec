"""A gateway that only this machine reaches, without any options."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.gateway import GatewayUnderTest, running_gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with running_gateway(tmp_path) as under_test:
        yield under_test
