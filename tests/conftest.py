"""How long hypothesis searches: `--hypothesis-profile=quick` is what tools/check says."""

from tests.support.examples import register

register()
