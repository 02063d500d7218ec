"""Where a statement is held that a script cannot tell, by the names of the tests; and what does not apply to us."""

from typing import Final

from mqttlite.wire.constants import V5, V311

_MALFORMED: Final = "tests/unit/wire/test_malformed.py"
_WEBSOCKET: Final = "tests/integration/test_websocket.py"
_UTF8: Final = (f"{_MALFORMED}::test_a_string_is_well_formed_utf8",)
_NO_NULL: Final = (f"{_MALFORMED}::test_a_string_has_no_null_character",)
_LONGEST: Final = ("tests/integration/test_bad_input.py::test_the_longest_topic_there_is_works",)
_FLAGS: Final = (f"{_MALFORMED}::test_the_reserved_flags_of_the_fixed_header_are_as_given",)
_CUT: Final = (f"{_MALFORMED}::test_a_connect_that_is_cut_short_is_malformed",)
_TCP: Final = ("tests/conformance/test_statements.py::test_over_a_socket",)
_CODES: Final = (f"{_MALFORMED}::test_a_code_is_one_of_its_packet",)
_VARINT: Final = ("tests/properties/test_wire.py::test_a_variable_byte_integer_is_read_as_it_was_written",)
_UNIQUE: Final = ("tests/unit/core/test_connect.py::test_a_client_without_an_identifier_is_given_one_that_nobody_has",)
_UNUSED: Final = ("tests/unit/core/test_session.py::test_identifiers_go_round_and_skip_those_in_use",)
_REFUSED: Final = (
    "tests/conformance/test_malformed.py::test_on_the_core",
    "tests/conformance/test_malformed.py::test_over_a_socket",
)
_INTEROP: Final = (
    "tests/interop/test_matrix.py::test_messages_of_every_qos_arrive_as_they_were_sent_in_both_directions",
)
_WEB: Final = {
    "6.0.0-1": (
        f"{_WEBSOCKET}::test_the_close_code_names_the_error",
        f"{_WEBSOCKET}::test_each_packet_is_a_frame_of_its_own",
    ),
    "6.0.0-2": (
        f"{_WEBSOCKET}::test_one_frame_may_hold_many_packets",
        f"{_WEBSOCKET}::test_a_packet_may_come_in_a_frame_for_each_byte",
    ),
    "6.0.0-3": (f"{_WEBSOCKET}::test_a_request_for_another_protocol_gets_a_status_and_a_sentence",),
    "6.0.0-4": (f"{_WEBSOCKET}::test_the_subprotocol_is_chosen_from_those_offered",),
}

ELSEWHERE: Final[dict[int, dict[str, tuple[str, ...]]]] = {
    V311: {
        "1.5.3-1": _UTF8,
        "1.5.3-2": _NO_NULL,
        "2.2.2-1": _FLAGS,
        "2.2.2-2": _FLAGS,
        "3.1.2-9": _CUT,
        "3.1.3-10": _UTF8,
        "3.1.3-11": _UTF8,
        "3.1.3-4": _UTF8,
        "3.3.2-1": _UTF8,
        "3.8.3-1": _UTF8,
        "3.10.3-1": _UTF8,
        "3.1.3-6": _UNIQUE,
        "2.3.1-4": _UNUSED,
        "3.9.3-2": _CODES,
        "4.7.3-3": _LONGEST,
        "4.8.0-1": _REFUSED,
        "4.8.0-2": ("tests/integration/test_embedding.py::test_too_much_before_connack_ends_the_connection",),
        **_WEB,
        "7.0.0-2": (
            "tests/interop/test_matrix.py::test_messages_of_every_qos_arrive_as_they_were_sent_in_both_directions",
        ),
        "7.1.1-1": _TCP,
    },
    V5: {
        "1.5.4-1": (*_UTF8, f"{_MALFORMED}::test_a_string_property_is_well_formed_utf8"),
        "1.5.4-2": (*_NO_NULL, f"{_MALFORMED}::test_a_string_property_has_no_null_character"),
        "1.5.5-1": _VARINT,
        "2.1.3-1": _FLAGS,
        "3.1.2-9": _CUT,
        "2.2.1-4": _UNUSED,
        "3.2.2-8": _CODES,
        "3.2.2-16": _UNIQUE,
        "3.4.2-1": _CODES,
        "3.5.2-1": _CODES,
        "3.6.2-1": _CODES,
        "3.7.2-1": _CODES,
        "3.9.3-2": _CODES,
        "3.11.3-2": _CODES,
        "3.14.2-1": _CODES,
        "3.15.2-1": _CODES,
        "4.2.0-1": _TCP,
        "4.7.3-3": _LONGEST,
        "4.13.1-1": _REFUSED,
        **_WEB,
    },
}

NOT_APPLICABLE: Final[dict[int, dict[str, str]]] = {
    V311: {"7.0.0-1": "the broker makes no connections to other servers"},
    V5: {},
}
"""Statements with a condition that is never met here, and why."""
