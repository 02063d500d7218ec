"""Rates are averages between two looks."""

from mqttlite.extensions.bridge.rates import MessageRates


def test_a_rate_is_that_of_the_time_since_the_look_before() -> None:
    rates = MessageRates()
    rates.look(10.0, 100, 7)
    assert (rates.sent_per_s, rates.received_per_s) == (0.0, 0.0)
    rates.look(15.0, 150, 8)
    assert (rates.sent_per_s, rates.received_per_s) == (10.0, 0.2)
    rates.look(20.0, 150, 8)
    assert (rates.sent_per_s, rates.received_per_s) == (0.0, 0.0)
