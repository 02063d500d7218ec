"""Extensions that a configuration names."""

from pathlib import Path

import pytest

from mqttlite.config.extensions import ExtensionOptions
from mqttlite.extensions.hooks import Hooks
from mqttlite.extensions.load import ExtensionError, check, load

MODULE = """
from typing import Annotated

import msgspec

from mqttlite import Hooks, Host

hooks = Hooks()
nothing = 5


class Prices:
    def __init__(self, file: str, factor: float = 1.5, names: tuple[str, ...] = ()) -> None:
        self.given = file, factor, names

    async def start(self, host: Host) -> None: ...


class Shop:
    prices = hooks


def make(count: int) -> Prices:
    if count < 0:
        raise ValueError("count")
    return Prices(str(count))


def narrow(ratio: Annotated[float, msgspec.Meta(le=1.0)]) -> object:
    return hooks


class Checked:
    def __init__(self, names: "Sequence[str]" = ()) -> None: ...

    async def start(self, host: Host) -> None: ...


class Worded:
    def __init__(self, names: "a list" = ()) -> None: ...

    async def start(self, host: Host) -> None: ...


class Unseen(dict):
    async def start(self, host: Host) -> None: ...


class Nameless:
    def __init__(self, count: int, /) -> None: ...

    async def start(self, host: Host) -> None: ...


class Spared:
    def __init__(self, count: int = 1, /) -> None:
        self.count = count

    async def start(self, host: Host) -> None: ...


class Mixed:
    def __init__(self, names: list[str] | tuple[str, ...] = ()) -> None: ...

    async def start(self, host: Host) -> None: ...


def bare(*args: object, **kwargs: object) -> object:
    return 5
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the folder in which the broker starts."""
    name = f"shop_{tmp_path.name}".replace("-", "_").replace("[", "_").replace("]", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_broken.py").write_text("1 / 0")
    (tmp_path / f"{name}_poor.py").write_text("import nosuchmodule")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    return name


def test_an_object_of_a_module_is_found(shop: str) -> None:
    assert isinstance(load(ExtensionOptions(use=f"{shop}:hooks")), Hooks)
    assert isinstance(load(ExtensionOptions(use=f"{shop}:Shop.prices")), Hooks)


def test_a_class_gets_its_options(shop: str) -> None:
    made = load(ExtensionOptions(use=f"{shop}:Prices", options={"file": "a", "names": ["b", "c"]}))
    assert made.given == ("a", 1.5, ("b", "c"))  # type: ignore[attr-defined]
    made = load(ExtensionOptions(use=f"{shop}:Prices", options={"file": "a", "factor": 2}))
    assert made.given == ("a", 2.0, ())  # type: ignore[attr-defined]


def test_a_function_makes_one(shop: str) -> None:
    assert load(ExtensionOptions(use=f"{shop}:make", options={"count": 3})).given[0] == "3"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("use", "options", "why"),
    [
        ("nosuch:hooks", {}, r"^use is nosuch:hooks: there is no module nosuch, neither where Python looks nor in /"),
        ("{shop}.more:hooks", {}, r"^use .* there is no module .*\.more"),
        ("{shop}:nosuch", {}, r"^use .* has no nosuch$"),
        ("{shop}:Shop.nosuch", {}, r"^use .* has no Shop.nosuch$"),
        ("{shop}:nothing", {}, r"^use .* has no method start\(host\)$"),
        ("{shop}:bare", {}, r"^use .* makes a int without start\(host\)$"),
        ("{shop}_broken:hooks", {}, r"^use .*: its import raised ZeroDivisionError"),
        ("{shop}_poor:hooks", {}, r"^use .*: its import raised ModuleNotFoundError.*nosuchmodule"),
        ("{shop}:make", {"count": -1}, r"^use .*, which raised ValueError\('count'\)$"),
        ("{shop}:hooks", {"count": 1}, r"^options are for a class or a function"),
        ("{shop}:Prices", {}, r"^options.file is missing: it has no default$"),
        ("{shop}:Prices", {"file": "a", "factor": "b"}, r"^options.factor must be a number, not text in quotes$"),
        ("{shop}:Prices", {"file": "a", "names": ["b", 3]}, r"^options.names\[1\] must be text in quotes, not a whole"),
        ("{shop}:Prices", {"file": "a", "fact": 2}, r"^options.fact is unknown; did you mean factor\?$"),
        ("{shop}:Prices", {"file": "a", "colour": 2}, r"^options.colour is unknown; it may be file, factor, names$"),
        ("{shop}:bare", {"colour": 2}, r"^options.colour is unknown; there are none$"),
        ("{shop}:narrow", {"ratio": 2.0}, r"^options.ratio: Expected `float` <= 1.0"),
    ],
)
def test_a_wrong_section_says_what_is_wrong(shop: str, use: str, options: dict[str, object], why: str) -> None:
    with pytest.raises(ExtensionError, match=why):
        load(ExtensionOptions(use=use.format(shop=shop), options=options))


def test_a_check_makes_no_extension(shop: str) -> None:
    options = {"count": -1}
    check(ExtensionOptions(use=f"{shop}:make", options=options))
    check(ExtensionOptions(use=f"{shop}:hooks"))
    with pytest.raises(ExtensionError, match="count"):
        load(ExtensionOptions(use=f"{shop}:make", options=options))


@pytest.mark.parametrize("use", ["", "shop", "shop:", ":hooks", "shop:a b", "shop-x:hooks", "shop.:hooks", "1:a"])
def test_a_name_has_a_module_and_an_object(use: str) -> None:
    with pytest.raises(ValueError, match=r"a module and an object in it, as in shop.hooks:hooks"):
        ExtensionOptions(use=use)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "Checked",
            "types that cannot be read: name 'Sequence' is not defined; import it outside of `if TYPE_CHECKING`",
        ),
        ("Worded", "whose arguments have types that cannot be read: Forward reference"),
        ("Unseen", "whose arguments cannot be seen: give it an __init__"),
        ("Nameless", "whose argument count has no name for callers"),
        ("Mixed", "whose arguments have types that no option has"),
    ],
)
def test_arguments_that_cannot_be_compared_with_options_are_a_sentence(shop: str, name: str, why: str) -> None:
    for act in (check, load):
        with pytest.raises(ExtensionError) as caught:
            act(ExtensionOptions(use=f"{shop}:{name}"))
        assert caught.value.place == "use"
        assert f"{shop}:{name}" in str(caught.value)
        assert why in str(caught.value)


def test_an_argument_that_cannot_be_named_keeps_its_default(shop: str) -> None:
    assert load(ExtensionOptions(use=f"{shop}:Spared")).count == 1  # type: ignore[attr-defined]
