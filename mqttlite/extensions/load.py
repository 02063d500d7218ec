"""Finds the extensions that a configuration names, and gives them their options."""

import importlib
import inspect
import os
import re
import sys
import typing
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final, cast

import msgspec

from mqttlite.config.extensions import ExtensionOptions
from mqttlite.config.shape import propose
from mqttlite.extensions.extension import Extension

_PLACE: Final = " - at `$"

_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text in quotes",
    "array": "a list",
    "object": "a section",
}
"""The types of TOML, by what msgspec calls them."""


class ExtensionError(Exception):
    """An extension cannot be found or made. `place` is the part of its section: `use`, or the path of an option."""

    def __init__(self, place: str, text: str) -> None:
        self.place: Final = place
        self.text: Final = text if text.startswith(":") else f" {text}"
        """The rest of the sentence, which begins with the place."""
        super().__init__(f"{place}{self.text}")


def load(options: ExtensionOptions) -> Extension:
    """The extension of one section. Raises `ExtensionError`; what the module itself raises is its cause."""
    found, arguments = _checked(options)
    if arguments is None:
        return cast(Extension, found)
    try:
        made = found(**arguments)
    except Exception as error:  # the program's own code may raise anything
        raise ExtensionError("use", f"is {options.use}, which raised {error!r}") from error
    if not callable(getattr(made, "start", None)):
        raise ExtensionError("use", f"is {options.use}, which makes a {type(made).__name__} without start(host)")
    return cast(Extension, made)


def check(options: ExtensionOptions) -> None:
    """Find the extension of one section, which imports its module, and compare its arguments with the options. Raises
    `ExtensionError`."""
    _checked(options)


def _checked(options: ExtensionOptions) -> tuple[Any, dict[str, Any] | None]:
    """What a section names, and the arguments with which it makes the extension; None: it is the extension."""
    found = _find(options.use)
    if callable(getattr(found, "start", None)) and not inspect.isclass(found):
        if options.options:
            raise ExtensionError("options", f"are for a class or a function, and {options.use} is an object")
        return found, None
    if not callable(found):
        raise ExtensionError("use", f"is {options.use}, which has no method start(host)")
    return found, _arguments(options.use, found, options.options)


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


def _arguments(use: str, found: Callable[..., object], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a class or function, converted to the types that it names. Raises `ExtensionError`."""
    function = found.__init__ if inspect.isclass(found) else found
    try:
        parameters = inspect.signature(found).parameters
    except (TypeError, ValueError) as error:  # as of a class below one that is written in C
        raise ExtensionError("use", f"is {use}, whose arguments cannot be seen: give it an __init__") from error
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # annotations may be any text
        text = f"is {use}, whose arguments have types that cannot be read: {error}"
        remedy = "; import it outside of `if TYPE_CHECKING`" if isinstance(error, NameError) else ""
        raise ExtensionError("use", f"{text}{remedy}") from error
    fields: list[Any] = []
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        is_needed = parameter.default is parameter.empty
        if parameter.kind == parameter.POSITIONAL_ONLY:
            if is_needed:
                raise ExtensionError("use", f"is {use}, whose argument {name} has no name for callers (`/`)")
            continue
        kind = hints.get(name, Any)
        fields.append((name, kind) if is_needed else (name, kind, msgspec.field(default_factory=_giver(parameter))))
    names = [field[0] for field in fields]
    for name in given:
        if name not in names:
            near = propose(name, names)
            remedy = f"did you mean {near}?" if near else f"it may be {', '.join(names)}" if names else "there are none"
            raise ExtensionError(f"options.{name}", f"is unknown; {remedy}")
    for name, *default in [(field[0], *field[2:]) for field in fields]:
        if name not in given and not default:
            raise ExtensionError(f"options.{name}", "is missing: it has no default")
    try:
        struct = msgspec.convert(dict(given), msgspec.defstruct("Options", fields, kw_only=True))
    except TypeError as error:
        raise ExtensionError("use", f"is {use}, whose arguments have types that no option has: {error}") from error
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(_PLACE)
        raise ExtensionError(f"options{place.rstrip('`')}", _in_words(text)) from None
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _in_words(text: str) -> str:
    """What msgspec says of a wrong type, in the words of TOML."""
    wrong = re.fullmatch(r"Expected `([^`]+)`, got `([^`]+)`", text)
    if wrong is None:
        return f": {text}"
    expected = [_WORDS.get(kind, kind) for kind in wrong[1].split(" | ")]
    return f"must be {' or '.join(expected)}, not {_WORDS.get(wrong[2], wrong[2])}"


def _giver(parameter: inspect.Parameter) -> Callable[[], Any]:
    return lambda: parameter.default
