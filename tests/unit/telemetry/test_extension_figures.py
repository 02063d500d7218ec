"""What the metrics port and `$SYS` get of extensions."""

from mqttlite.telemetry.extension_figures import ExtensionFigures
from mqttlite.telemetry.figures import Figure

SENT = Figure("gauge", "sent", "", sys_topic="mail/sent")
UNSAID = Figure("gauge", "unsaid", "")


def test_figures_have_topics_if_they_say_so() -> None:
    shown = ExtensionFigures()
    shown.show([SENT, UNSAID], lambda: {"sent": [({"to": "a"}, 3), ({"to": "b"}, 4)], "unsaid": 8})
    assert [(figure.name, values) for figure, values in shown.values()][1] == ("unsaid", 8)
    assert list(shown.sys_values()) == [("mail/sent", "7")]


def test_an_extension_gives_further_names_and_is_not_asked_for_values_without_a_topic() -> None:
    asked: list[str] = []
    shown = ExtensionFigures()
    shown.show([UNSAID], lambda: asked.append("unsaid") or {"unsaid": 8}, lambda: [("mail/state", "open")])  # type: ignore[func-returns-value]
    assert list(shown.sys_values()) == [("mail/state", "open")]
    assert asked == []
