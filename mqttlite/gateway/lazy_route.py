"""A route that the framework analyses at its first request, not at the start of the gateway.

Invariant: until then it knows what finding it takes, its path and methods, and afterwards it is any other route.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import Route


class LazyRoute(APIRoute):
    """Its parameters and models take half a millisecond to analyse, and a gateway has 180 routes."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        methods: Sequence[str] = ("GET",),
        name: str | None = None,
        include_in_schema: bool = True,
        **options: Any,
    ) -> None:
        Route.__init__(self, path, endpoint, methods=methods, name=name, include_in_schema=include_in_schema)
        self.methods: set[str] = {method.upper() for method in methods}  # not HEAD: the gateway answers it for all
        del self.app  # which the analysis makes
        self._options = {"methods": methods, "name": name, "include_in_schema": include_in_schema, **options}

    def __getattr__(self, name: str) -> Any:
        """An attribute that the analysis makes. Python asks here for missing attributes alone."""
        options = self.__dict__.pop("_options", None)
        if options is None:
            raise AttributeError(name)
        super().__init__(self.path, self.endpoint, **options)
        return getattr(self, name)
