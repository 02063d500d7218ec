"""Who may come in: passwords, and the authentication methods of 5.0 (§3.1.4, §3.15, §4.12).

The gate of `worlds` takes the password `p`; with the method `M` it lets in who says `in`, asks who says `more` to go
on, and refuses any other word.
"""

from typing import Final

from mqttlite.core.limits import Limits
from tests.conformance.script import ONLY_3, ONLY_5, Row

PASSWORDS: Final = [
    Row(
        "MQTT-3.1.3-1 MQTT-3.1.2-9 MQTT-3.1.2-17 MQTT-3.1.2-19",
        "client identifier, will, user name and password come in their order, and are each taken for what they are",
        """
        b> 10 ~ "MQTT" VV c2 0000 {} "b" "u" "p" => connack 0 00
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a> 10 ~ "MQTT" VV f6 0000 {} "a" {} "w" "x" "u" "p" => connack 0 00
        a-
        b< 34 ~ "w" 0001 {} 'x'
    """,
        gated=True,
    ),
    Row(
        "MQTT-3.1.4-2 MQTT-3.1.4-5 MQTT-3.2.2-7",
        "who has the password comes in, and who has not does not",
        """
        a> 10 ~ "MQTT" 05 c2 0000 {} "a" "u" "p" => connack 0 00
        b> 10 ~ "MQTT" 05 c2 0000 {} "b" "u" "q" => connack 0 86
        b!
        c> 10 ~ "MQTT" 05 02 0000 {} "c" => connack 0 86
        c!
        a> c0 00 => d0 00
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "3.1.1 MQTT-3.1.4-4 3.1.1 MQTT-3.2.2-5",
        "who has not the password hears 'bad user name or password'",
        """
        a> 10 ~ "MQTT" 04 c2 0000 "a" "u" "p" => 20 02 00 00
        b> 10 ~ "MQTT" 04 c2 0000 "b" "u" "q" => 20 02 00 04
        b!
        c> 10 ~ "MQTT" 04 02 0000 "c" => 20 02 00 04
        c!
    """,
        ONLY_3,
        gated=True,
    ),
    Row(
        "3.1.1 MQTT-3.2.2-4",
        "who is refused hears of no session, even where there is one",
        """
        a> 10 ~ "MQTT" 04 c0 0000 "a" "u" "p" => 20 02 00 00
        a- -- the session stays
        a> 10 ~ "MQTT" 04 c0 0000 "a" "u" "q" => 20 02 00 04
        a!
        a> 10 ~ "MQTT" 04 c0 0000 "a" "u" "p" => 20 02 01 00
    """,
        ONLY_3,
        gated=True,
    ),
    Row(
        "MQTT-3.2.2-6",
        "who is refused hears of no session, even where there is one",
        """
        a> 10 ~ "MQTT" 05 c0 0000 { 11 00000064 } "a" "u" "p" => connack 0 00
        a-
        a> 10 ~ "MQTT" 05 c0 0000 { 11 00000064 } "a" "u" "q" => connack 0 86
        a!
        a> 10 ~ "MQTT" 05 c0 0000 { 11 00000064 } "a" "u" "p" => connack 1 00
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-3.1.4-6",
        "what a refused client sends behind its CONNECT is not processed",
        """
        a> 10 ~ "MQTT" VV c2 0000 {} "a" "u" "p" => connack 0 00
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        b> 10 ~ "MQTT" VV 06 0000 {} "b" {} "t" "will" ; 30 ~ "t" {} 'x' => 20 02 00 04
        b!
        a.
    """,
        ONLY_3,
        gated=True,
    ),
    Row(
        "§3.1.4",
        "what a client sends behind its CONNECT waits for the answer",
        """
        a> 10 ~ "MQTT" VV c2 0000 {} "a" "u" "p" ; 82 ~ 0001 {} "t" 00
        a< connack 0 00
        a> c0 00
        a< 90 ~ 0001 {} 00
        a< d0 00
    """,
        gated=True,
    ),
    Row(
        "§3.1.4",
        "who is refused takes nothing over",
        """
        a> 10 ~ "MQTT" 05 c2 0000 {} "a" "u" "p" => connack 0 00
        b> 10 ~ "MQTT" 05 c2 0000 {} "a" "u" "q" => connack 0 86
        b!
        a> c0 00 => d0 00
    """,
        ONLY_5,
        gated=True,
    ),
]

METHODS: Final = [
    Row(
        "MQTT-4.12.0-5 MQTT-3.1.4-5",
        "a CONNACK names the method, and has the last word of it",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "in" } "a"
        a< connack 0 00 authentication_method=M authentication_data=b'welcome'
        a> c0 00 => d0 00
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-4.12.0-2 MQTT-4.12.0-5 MQTT-3.15.2-1 MQTT-3.15.2-2 MQTT-3.15.2-3 MQTT-3.2.0-1",
        "a client that is to send more gets an AUTH 0x18 with the method and the data, and nothing else",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "more" } "a" => f0 ~ 18 { 15 "M" 16 "go on" }
        a> f0 ~ 18 { 15 "M" 16 "more" } => f0 ~ 18 { 15 "M" 16 "go on" }
        a> f0 ~ 18 { 15 "M" 16 "in" } => connack 0 00 authentication_method=M
        a> c0 00 => d0 00
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-4.12.0-4",
        "the server may refuse at once",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "no" } "a" => connack 0 87
        a!
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-4.12.0-4 MQTT-3.14.0-1",
        "the server may refuse at any step, with a CONNACK and not a DISCONNECT",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "more" } "a" => f0 ~ 18 { 15 "M" 16 "go on" }
        a> f0 ~ 18 { 15 "M" 16 "no" } => connack 0 87
        a!
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-4.12.0-1",
        "another method than those that are offered is refused with 0x8C",
        """
        a> 10 ~ "MQTT" 05 c2 0000 { 15 "N" 16 "in" } "a" "u" "p" => connack 0 8c
        a!
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-4.12.0-5",
        "an AUTH of another method than CONNECT's is a protocol error",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "more" } "a" => f0 ~ 18 { 15 "M" 16 "go on" }
        a> f0 ~ 18 { 15 "N" 16 "in" } => connack 0 82
        a!
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-4.12.0-3",
        "an AUTH that goes on has 0x18",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "more" } "a" => f0 ~ 18 { 15 "M" 16 "go on" }
        a> f0 ~ 19 { 15 "M" 16 "in" } => connack 0 82
        a!
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-3.1.2-30",
        "with a method only AUTH and DISCONNECT are welcome before CONNACK",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "more" } "a" => f0 ~ 18 { 15 "M" 16 "go on" }
        a> c0 00 => connack 0 82
        a!
        b> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "more" } "b" => f0 ~ 18 { 15 "M" 16 "go on" }
        b> e0 00
        b!
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-4.12.0-6 MQTT-4.12.0-7",
        "who comes in with a password and sends AUTH breaks a rule",
        """
        a> 10 ~ "MQTT" 05 c2 0000 {} "a" "u" "p"
        a< connack 0 00 authentication_method=None authentication_data=None
        a> f0 ~ 19 { 15 "M" 16 "in" }
        a! 82
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-4.12.1-1 MQTT-4.12.0-5",
        "a client may authenticate itself again, and goes on meanwhile",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "in" } "a" => connack 0 00
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        a> f0 ~ 19 { 15 "M" 16 "more" } => f0 ~ 18 { 15 "M" 16 "go on" }
        a> 30 ~ "t" {} 'x' => 30 ~ "t" {} 'x'
        a> f0 ~ 18 { 15 "M" 16 "in" } => f0 ~ 00 { 15 "M" 16 "welcome" }
        a> 30 ~ "t" {} 'y' => 30 ~ "t" {} 'y'
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-4.12.1-2",
        "where that fails the connection is closed",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "in" } "a" => connack 0 00
        a> f0 ~ 19 { 15 "M" 16 "no" }
        a! 87
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-4.12.1-1",
        "authenticating again with another method is a protocol error",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "in" } "a" => connack 0 00
        a> f0 ~ 19 { 15 "N" 16 "in" }
        a! 82
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-3.15.2-1",
        "an AUTH with a reason code that is none of its own is a protocol error",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "in" } "a" => connack 0 00
        a> f0 ~ 87 { 15 "M" 16 "in" }
        a! 82
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "MQTT-3.1.2-24",
        "an AUTH is not larger than the client takes",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 27 0000000c 15 "M" 16 "more" } "a" => 20 03 00 95 00
        a!
    """,
        ONLY_5,
        gated=True,
    ),
    Row(
        "§4.12",
        "an exchange that does not end is ended",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "M" 16 "more" } "a" => f0 ~ 18 { 15 "M" 16 "go on" }
        + 11
        a!
    """,
        ONLY_5,
        Limits(connect_timeout_s=10.0),
        gated=True,
    ),
]

ROWS: Final = [*PASSWORDS, *METHODS]
