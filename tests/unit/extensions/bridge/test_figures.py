"""Rates are averages between two looks."""

from mqttlite.extensions.bridge.figures import Figures


def test_a_rate_is_that_of_the_time_since_the_look_before() -> None:
    figures = Figures()
    figures.sent, figures.received = 100, 7
    figures.look(10.0)
    assert (figures.sent_per_s, figures.received_per_s) == (0.0, 0.0)
    figures.sent, figures.received = 150, 8
    figures.look(15.0)
    assert (figures.sent_per_s, figures.received_per_s) == (10.0, 0.2)
    figures.look(20.0)
    assert (figures.sent_per_s, figures.received_per_s) == (0.0, 0.0)
