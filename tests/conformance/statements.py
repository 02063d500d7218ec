"""The normative statements of MQTT 5.0 (its appendix B), and where those are held that have no row.

3.1.1 numbers its own differently; a row that is for both versions carries the number of 5.0.
"""

from typing import Final

LAST: Final = {
    "1.5.4": 3,
    "1.5.5": 1,
    "1.5.7": 1,
    "2.1.3": 1,
    "2.2.1": 6,
    "2.2.2": 1,
    "3.1.0": 2,
    "3.1.2": 30,
    "3.1.3": 12,
    "3.1.4": 6,
    "3.2.0": 2,
    "3.2.2": 22,
    "3.3.1": 13,
    "3.3.2": 20,
    "3.3.4": 10,
    "3.4.2": 3,
    "3.5.2": 3,
    "3.6.1": 1,
    "3.6.2": 3,
    "3.7.2": 3,
    "3.8.1": 1,
    "3.8.3": 5,
    "3.8.4": 8,
    "3.9.2": 2,
    "3.9.3": 2,
    "3.10.1": 1,
    "3.10.3": 2,
    "3.10.4": 6,
    "3.11.2": 2,
    "3.11.3": 2,
    "3.12.4": 1,
    "3.14.0": 1,
    "3.14.1": 1,
    "3.14.2": 4,
    "3.14.4": 3,
    "3.15.1": 1,
    "3.15.2": 3,
    "4.1.0": 2,
    "4.2.0": 1,
    "4.3.1": 1,
    "4.3.2": 5,
    "4.3.3": 13,
    "4.4.0": 2,
    "4.5.0": 2,
    "4.6.0": 6,
    "4.7.0": 1,
    "4.7.1": 2,
    "4.7.2": 1,
    "4.7.3": 4,
    "4.8.2": 6,
    "4.9.0": 3,
    "4.12.0": 7,
    "4.12.1": 2,
    "4.13.1": 1,
    "4.13.2": 1,
    "6.0.0": 4,
}
"""The number of the last statement in each section."""

NONE_BY_THAT_NUMBER: Final = "2.2.1-1"

BINDS_THE_CLIENT: Final = """
    3.1.2-20 3.1.2-30 3.1.3-1 3.2.2-4 3.2.2-5 3.2.2-11 3.2.2-14 3.2.2-15 3.2.2-17 3.2.2-18
    3.3.2-10 3.3.4-8 4.5.0-2 4.6.0-1 4.6.0-2 4.6.0-3 4.6.0-4 4.12.0-3 4.12.0-7 6.0.0-3
"""

NEVER_SENT: Final = """
    3.1.2-28 3.1.2-29 3.2.2-20 3.3.4-5 3.4.2-2 3.4.2-3 3.5.2-2 3.5.2-3 3.6.2-2 3.6.2-3 3.7.2-2
    3.7.2-3 3.9.2-1 3.9.2-2 3.11.2-1 3.11.2-2 3.14.2-2 3.14.2-4 3.15.2-2 3.15.2-3
"""
"""About response information, user properties and reason strings in packets where we send none."""

NOT_ON_THE_WIRE_HERE: Final = {
    "3.1.2-9": "tests/unit/wire: the fields that CONNECT's flags promise",
    "3.1.2-16": "tests/unit/wire",
    "3.1.2-19": "tests/unit/wire",
    "3.1.3-12": "tests/unit/wire: strings",
    "1.5.4-1": "tests/unit/wire: strings, in every place where one stands",
    "1.5.4-2": "tests/unit/wire: strings, in every place where one stands",
    "2.2.1-2": "tests/properties/test_wire.py",
    "3.2.2-8": "tests/unit/wire: the codes of each packet",
    "3.4.2-1": "tests/unit/wire: the codes of each packet",
    "3.5.2-1": "tests/unit/wire: the codes of each packet",
    "3.6.2-1": "tests/unit/wire: the codes of each packet",
    "3.7.2-1": "tests/unit/wire: the codes of each packet",
    "3.14.2-1": "tests/unit/wire: the codes of each packet",
    "3.15.2-1": "tests/unit/wire: the codes of each packet",
    "3.3.2-1": "tests/unit/wire: strings",
    "3.3.2-13": "tests/unit/wire: strings",
    "3.3.2-19": "tests/unit/wire: strings",
    "3.8.3-1": "tests/unit/wire: strings",
    "3.10.3-1": "tests/unit/wire: strings",
    "4.7.3-3": "a length has two bytes",
    "4.2.0-1": "TCP",
    "1.5.7-1": "tests/unit/wire: strings",
    "2.1.3-1": "tests/unit/wire: the flags of each packet",
    "3.1.3-8": "every client identifier is taken",
    "3.1.2-26": "tests/unit/core/test_topic_aliases.py",
    "3.3.2-11": "tests/unit/core/test_topic_aliases.py",
}

UNHELD: Final = """
    4.12.0-2 4.12.0-4 4.12.0-5 4.12.1-2
    6.0.0-1 6.0.0-2 6.0.0-4
"""
"""Without a row yet: enhanced authentication, and MQTT over WebSocket."""
