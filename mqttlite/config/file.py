"""Reads a configuration file to a `Config`, and reports all errors with their lines.

`shape` finds wrong keys and types. The option types check values: a section that refuses one option is tried again
without it, so that each wrong option is reported. Invariant: a `Config` is returned only if there is no error.
"""

import copy
import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from mqttlite.config.checks import conflicts
from mqttlite.config.lines import Lines
from mqttlite.config.options import BESIDE_PATH, Config, ConfigError, ListenerOptions
from mqttlite.config.shape import Problem, join, shape_problems
from mqttlite.core.connect.capabilities import EVERYTHING, Capabilities
from mqttlite.core.limits import Limits, OverloadLimits
from mqttlite.extensions.built_in import BUILT_IN, resolve

_AT: Final = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)")
_PATH: Final = re.compile(r"[\w.\[\]]+")
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")

_SYNTAX: Final = (
    ("Cannot overwrite", "the option or section stands there a second time: remove one of them"),
    ("Cannot declare", "the section stands there a second time: put its options together"),
    ("Cannot mutate", "the section stands there a second time: put its options together"),
    ("Expected '=' after a key", "an option is written name = value"),
    ("Invalid statement", "an option is written name = value, a section [name]"),
    ("Illegal character", "a quote is not closed"),
    ("Unclosed array", "a list is not closed: ] is missing"),
    ("Unterminated string", "a quote is not closed"),
    ("Unescaped", "write a backslash twice, or the text in single quotes"),
)
"""The beginnings of TOML parser errors, with advice."""

_VALUE_SYNTAX: Final = 'a value is a number, true, false, "text in quotes", or a list in [ ]'


class Reading(NamedTuple):
    """The result of reading a file: its config without the wrong options, if possible, and the errors."""

    config: Config | None
    problems: list[Problem]
    path: str
    lines: Lines

    def located(self, problem: Problem) -> str:
        """A problem as a sentence that begins with the file and the line."""
        number = self.lines.find(problem.path)
        return f"{self.path}{f':{number}' if number else ''}: {problem}"

    def sentences(self, problems: Iterable[Problem]) -> list[str]:
        """Problems as sentences, in the order of their lines."""
        return [self.located(each) for each in sorted(problems, key=lambda each: self.lines.find(each.path) or 0)]


def read_file(path: str | Path) -> Reading:
    """Read a TOML file. Raises `ConfigError` for a file that cannot be read or is not TOML."""
    return read_toml(path, _read(Path(path)))


def read_toml(path: str | Path, text: str) -> Reading:
    """Read the text of a TOML file. Raises `ConfigError` if it is not TOML. `path` is for the sentences."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_explain_syntax(path, text, str(error))) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or thousands of brackets
        raise ConfigError(f"{path}: it cannot be read: {error}") from None
    try:
        return Reading(*_convert(raw), str(path), Lines(text))
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply") from None


def load_config(path: str | Path) -> Config:
    """The config in a TOML file. Raises `ConfigError`."""
    reading = read_file(path)
    if reading.config is None or reading.problems:
        raise ConfigError(*reading.sentences(reading.problems))
    return reading.config


def parse_config(raw: Mapping[str, Any]) -> Config:
    """Convert the content of a TOML file to a config. Raises `ConfigError` with the paths of all wrong options."""
    config, problems = _convert(raw)
    if config is None or problems:
        raise ConfigError(*map(str, problems))
    return config


def changed_options(former: object, new: object, path: str = "") -> list[str]:
    """The paths of options that differ between two configs, for example `listeners[0].port`, or of a section that only
    one has."""
    if type(former) is type(new):
        if isinstance(former, msgspec.Struct) or dataclasses.is_dataclass(former):
            info = msgspec.inspect.type_info(type(former))
            assert isinstance(info, (msgspec.inspect.StructType, msgspec.inspect.DataclassType))
            names = [field.name for field in info.fields]
            return [
                option
                for name in names
                for option in changed_options(getattr(former, name), getattr(new, name), join(path, name))
            ]
        if isinstance(former, tuple) and isinstance(new, tuple) and len(former) == len(new):
            pairs = enumerate(zip(former, new, strict=True))
            return [option for number, pair in pairs for option in changed_options(*pair, f"{path}[{number}]")]
    return [] if former == new else [path]


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "it is not text in UTF-8"
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
        elif not isinstance(error, UnicodeDecodeError):
            reason = str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


def _explain_syntax(path: str | Path, text: str, error: str) -> str:
    """An error of the TOML parser in words, with its line."""
    found = _AT.fullmatch(error)
    said, number = (found[1], found[2]) if found is not None else (error, None)
    lines = text.splitlines()
    at = f":{number}" if number else f":{max(1, len(lines))}"
    for each in BUILT_IN.values():
        if each.advice and (advice := resolve(each.advice)(path, text)):
            return f"{path}{at}: {advice}"
    line = lines[int(number) - 1].strip() if number and int(number) <= len(lines) else ""
    remedy = next((words for begin, words in _SYNTAX if said.startswith(begin)), _VALUE_SYNTAX)
    return f"{path}{at}: {f'{line!r} is not TOML' if line else 'this is not TOML'} ({said}): {remedy}"


# ── sections ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _convert(raw: Mapping[str, Any]) -> tuple[Config | None, list[Problem]]:
    """The config, if possible, and all errors."""
    usable = copy.deepcopy(dict(raw))
    problems = [*shape_problems(raw), *_beside_path(raw)]
    for each in problems:
        _remove(usable, each.path)
    while True:
        try:
            config = msgspec.convert(_with_defaults(usable), Config)
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            section = where.rstrip("`").lstrip(".").partition("[...]")[0]  # [...] stands for a key
            problem = _refusal(usable, message, section)
            is_known = problem.path and any(each.path.startswith(problem.path) for each in problems)
            if not is_known and not message.startswith("Object missing required field"):  # which `shape` has reported
                problems.append(problem)
            if not problem.path or not _remove(usable, problem.path):
                return None, problems
        else:
            return config, [*problems, *new_problems(problems, conflicts(config))]


def new_problems(known: Iterable[Problem], problems: Iterable[Problem]) -> Iterator[Problem]:
    """The problems about options that are not already known to be wrong."""
    wrong = {each.path for each in known}
    return (each for each in problems if not wrong & set(_PATH.findall(str(each))))


def _refusal(raw: Mapping[str, Any], message: str, section: str) -> Problem:
    """The error from a section's options, at the option that its sentence begins with."""
    option = re.match(r"\w*", message)
    assert option is not None
    path = join(section, option[0])
    if option[0] and _get(raw, path) is not None:
        return Problem(path, message[option.end() :])
    return Problem(section, f": {message}" if section else message)


def _beside_path(raw: Mapping[str, Any]) -> Iterable[Problem]:
    """A host or port that has its default value beside a path: the options cannot tell that it was set."""
    default = ListenerOptions()
    listeners = raw.get("listeners")
    for number, listener in enumerate(listeners if isinstance(listeners, list) else ()):
        if isinstance(listener, dict) and isinstance(listener.get("path"), str):
            for name in ("host", "port"):
                if listener.get(name) == getattr(default, name):
                    yield Problem(f"listeners[{number}].{name}", f" is {listener[name]!r} {BESIDE_PATH}")


def _steps(path: str) -> list[str | int]:
    return [int(number) if number else name for number, name in _STEP.findall(path)]


def _get(raw: object, path: str) -> object:
    try:
        for step in _steps(path):
            raw = raw[step]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        return None
    return raw


def _remove(raw: dict[str, Any], path: str) -> bool:
    """Remove a wrong option, so that the others can be checked. Return whether it existed.

    A list loses all its values, but a section in a list only its options, so that the numbers of the others stay the
    same.
    """
    steps = _steps(path)
    parents: list[Any] = [raw]
    for step in steps:
        parent = parents[-1]
        known = step < len(parent) if isinstance(step, int) and isinstance(parent, list) else step in parent
        if not known:
            return False
        parents.append(parent[step])
    for step, parent in reversed(list(zip(steps, parents, strict=False))):
        if isinstance(parent, dict):
            del parent[step]
            return True
        if steps[0] == "listeners" and len(steps) == 2 and parent[step] != {}:
            parent[step] = {}
            return True
    return False


def _with_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults to the sections that are types of the core: msgspec creates their objects without `__init__`,
    and in the compiled build unset fields would be 0 instead of the default."""

    def whole(section: object, defaults: Limits | OverloadLimits | Capabilities) -> object:
        return {**dataclasses.asdict(defaults), **section} if isinstance(section, dict) else section

    raw = dict(raw)
    if "limits" in raw:
        raw["limits"] = whole(raw["limits"], Limits())
    if "overload" in raw:
        raw["overload"] = whole(raw["overload"], OverloadLimits())
    if isinstance(listeners := raw.get("listeners"), list):
        raw["listeners"] = [
            {**listener, "capabilities": whole(listener["capabilities"], EVERYTHING)}
            if isinstance(listener, dict) and "capabilities" in listener
            else listener
            for listener in listeners
        ]
    return raw
