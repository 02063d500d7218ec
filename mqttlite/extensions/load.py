"""Finds the extensions that a configuration names, and gives them their options."""

import importlib
import inspect
import os
import sys
import typing
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final, cast

import msgspec

from mqttlite.config.extensions import ExtensionOptions
from mqttlite.extensions.extension import Extension

_PLACE: Final = " - at `$"


class ExtensionError(Exception):
    """An extension cannot be found or made. `place` is the part of its section: `use`, or the path of an option."""

    def __init__(self, place: str, text: str) -> None:
        super().__init__(f"{place}{text}" if text.startswith(":") else f"{place} {text}")


def load(options: ExtensionOptions) -> Extension:
    """The extension of one section. Raises `ExtensionError`; what the module itself raises is its cause."""
    found = _find(options.use)
    if callable(getattr(found, "start", None)) and not inspect.isclass(found):
        if options.options:
            raise ExtensionError("options", f"are for a class or a function, and {options.use} is an object")
        return cast(Extension, found)
    if not callable(found):
        raise ExtensionError("use", f"is {options.use}, which has no method start(host)")
    try:
        made = found(**_arguments(found, options.options))
    except ExtensionError:
        raise
    except Exception as error:  # the program's own code may raise anything
        raise ExtensionError("use", f"is {options.use}, which raised {error!r}") from error
    if not callable(getattr(made, "start", None)):
        raise ExtensionError("use", f"is {options.use}, which makes a {type(made).__name__} without start(host)")
    return cast(Extension, made)


def _find(use: str) -> object:
    module_name, _, path = use.partition(":")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything while it is imported
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            text = f"is {use}: there is no module {error.name}, neither where Python looks nor in {folder}"
            raise ExtensionError("use", text) from error
        raise ExtensionError("use", f"is {use}: its import raised {error!r}") from error
    try:
        return reduce(getattr, path.split("."), module)
    except AttributeError:
        raise ExtensionError("use", f"is {use}: {module_name} has no {path}") from None


def _arguments(found: Callable[..., object], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a class or function, converted to the types that it names. Raises `ExtensionError`."""
    function = found.__init__ if inspect.isclass(found) else found
    hints = typing.get_type_hints(function)
    fields: list[Any] = []
    for name, parameter in inspect.signature(found).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kind = hints.get(name, Any)
        is_needed = parameter.default is parameter.empty
        fields.append((name, kind) if is_needed else (name, kind, msgspec.field(default_factory=_giver(parameter))))
    kinds = msgspec.defstruct("Options", fields, kw_only=True, forbid_unknown_fields=True)
    try:
        struct = msgspec.convert(dict(given), kinds)
    except msgspec.ValidationError as error:
        text, at, place = str(error).partition(_PLACE)
        raise ExtensionError(f"options{place.rstrip('`')}" if at else "options", f": {text}") from None
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _giver(parameter: inspect.Parameter) -> Callable[[], Any]:
    return lambda: parameter.default
