"""What 3.1.1 says otherwise than 5.0, or only 3.1.1 says: no reasons, no DISCONNECT from the server, clean session."""

from typing import Final

from mqttlite.core.connect.capabilities import Capabilities
from tests.conformance.script import ONLY_3, Row

CONNECTING: Final = [
    Row(
        "3.1.1 MQTT-3.1.4-1 3.1.1 MQTT-3.1.2-14 3.1.1 MQTT-3.2.2-6",
        "will QoS 3 closes the connection without a word",
        """
        a> 10 ~ "MQTT" 04 1e 0000 "a" "w" "x"
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-11 3.1.1 MQTT-3.1.2-13 3.1.1 MQTT-3.1.4-1",
        "without a will there is no will QoS",
        """
        a> 10 ~ "MQTT" 04 0a 0000 "a"
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-11 3.1.1 MQTT-3.1.2-15 3.1.1 MQTT-3.1.4-1",
        "without a will there is no will retain",
        """
        a> 10 ~ "MQTT" 04 22 0000 "a"
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-11 3.1.1 MQTT-3.1.3-1",
        "without the will flag there is no will topic and no will message",
        """
        a> 10 ~ "MQTT" 04 02 0000 "a" "w" "x"
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-12",
        "without the will flag no will is published",
        """
        hello a b
        b> 82 ~ 0001 "#" 00 => 90 ~ 0001 00
        a-
        b.
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-20",
        "without its flag there is no password",
        """
        a> 10 ~ "MQTT" 04 82 0000 "a" "u" "p"
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.3-4 3.1.1 MQTT-3.1.4-1",
        "a client identifier that is not UTF-8 closes the connection without a word",
        """
        a> 10 ~ "MQTT" 04 02 0000 0001 ff
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.3-10",
        "a will topic that is not UTF-8 closes the connection without a word",
        """
        a> 10 ~ "MQTT" 04 06 0000 "a" 0001 ff "x"
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.3-11",
        "a user name that is not UTF-8 closes the connection without a word",
        """
        a> 10 ~ "MQTT" 04 82 0000 "a" 0001 ff
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-2 3.1.1 MQTT-3.2.2-5",
        "an unknown level of MQTT hears 0x01, whatever stands behind it",
        """
        a> 10 ~ "MQTT" 03 => 20 02 00 01
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.3-6",
        "clients without an identifier are clients of their own, and take nothing over",
        """
        a> 10 ~ "MQTT" 04 02 0000 "" => 20 02 00 00
        b> 10 ~ "MQTT" 04 02 0000 "" => 20 02 00 00
        a> 82 ~ 0001 "t" 00 => 90 ~ 0001 00
        b> 30 ~ "t" 'x'
        a< 30 ~ "t" 'x'
        b.
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.4-2",
        "a former connection is closed without a word",
        """
        hello a
        b> 10 ~ "MQTT" 04 02 0000 "a" => 20 02 00 00
        a!
        b> c0 00 => d0 00
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.2.2-6 3.1.1 MQTT-3.1.4-1",
        "a will above the server's QoS has no return code: the connection is closed without a word",
        """
        a> 10 ~ "MQTT" 04 16 0000 "a" "w" "x"
        a!
        b> 10 ~ "MQTT" 04 0e 0000 "b" "w" "x" => 20 02 00 00
        b> 34 ~ "t" 0001 'x'
        b!
    """,
        ONLY_3,
        capabilities=Capabilities(maximum_qos=1),
    ),
    Row(
        "3.1.1 MQTT-3.2.2-5",
        "a server that sends its clients elsewhere is unavailable to those who cannot be told",
        """
        a> 10 ~ "MQTT" 04 02 0000 "a" => 20 02 00 03
        a!
    """,
        ONLY_3,
        capabilities=Capabilities(server_reference="other.example:1883"),
    ),
]

SESSIONS: Final = [
    Row(
        "3.1.1 MQTT-4.1.0-2 3.1.1 MQTT-4.1.0-1",
        "a session of clean session 1 lasts as long as its connection",
        """
        hello a b
        a> 82 ~ 0001 "t" 01 => 90 ~ 0001 01
        + 10000000
        b> 32 ~ "t" 0001 'x' => 40 02 0001
        a< 32 ~ "t" 0001 'x'
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-4.1.0-1 3.1.1 MQTT-3.1.2-4 3.1.1 MQTT-3.1.2-5",
        "a session of clean session 0 keeps subscriptions and messages, however long its client is away",
        """
        stay a
        a> 82 ~ 0001 "t" 01 => 90 ~ 0001 01
        a> e0 00
        a!
        hello b
        b> 32 ~ "t" 0001 'x' => 40 02 0001
        + 10000000
        back a
        a< 32 ~ "t" 0001 'x'
        a> 40 02 0001
        b> 30 ~ "t" 'y'
        a< 30 ~ "t" 'y'
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-6 3.1.1 MQTT-3.2.2-1",
        "clean session 1 discards the session there was, and leaves none behind",
        """
        stay a
        a> 82 ~ 0001 "t" 01 => 90 ~ 0001 01
        a-
        hello a
        a> e0 00
        a!
        back a new
        hello b
        b> 32 ~ "t" 0001 'x' => 40 02 0001
        a.
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-10",
        "a will that DISCONNECT deleted, or that was published, is gone from the session",
        """
        hello b
        b> 82 ~ 0001 "w" 00 => 90 ~ 0001 00
        a> 10 ~ "MQTT" 04 04 0000 "a" "w" "1" => 20 02 00 00
        a> e0 00
        a!
        back a
        a-
        b.
        a> 10 ~ "MQTT" 04 04 0000 "a" "w" "2" => 20 02 01 00
        a-
        b< 30 ~ "w" '2'
        back a
        a-
        b.
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-8 3.1.1 MQTT-3.1.2-9",
        "a takeover, too, publishes the will, with its QoS and RETAIN",
        """
        hello b
        b> 82 ~ 0001 "w" 02 => 90 ~ 0001 02
        a> 10 ~ "MQTT" 04 36 0000 "a" "w" "gone" => 20 02 00 00
        c> 10 ~ "MQTT" 04 02 0000 "a" => 20 02 00 00
        a!
        b< 34 ~ "w" 0001 'gone'
        c> 82 ~ 0001 "w" 02 => 90 ~ 0001 02
        c< 35 ~ "w" 0001 'gone'
    """,
        ONLY_3,
    ),
]

MESSAGES: Final = [
    Row(
        "3.1.1 MQTT-3.3.5-2",
        "a PUBLISH that is not authorized is acknowledged as any other, and goes nowhere",
        """
        hello a b
        a> 82 ~ 0001 "$SYS/mine" 02 => 90 ~ 0001 02
        b> 30 ~ "$SYS/mine" 'x'
        b> 32 ~ "$SYS/mine" 0001 'x' => 40 02 0001
        b> 34 ~ "$SYS/mine" 0002 'x' => 50 02 0002
        b> 62 02 0002 => 70 02 0002
        a.
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.8.3-2 3.1.1 MQTT-3.9.3-2 3.1.1 MQTT-3.8.4-5",
        "a server without wildcards rejects them with 0x80",
        """
        hello a
        a> 82 ~ 0001 "t/+" 00 "t" 01 "#" 02 => 90 ~ 0001 80 01 80
    """,
        ONLY_3,
        capabilities=Capabilities(wildcards_available=False),
    ),
    Row(
        "3.1.1 MQTT-3.3.1-12 3.1.1 MQTT-3.3.1-9",
        "RETAIN 1 comes for a new subscription only",
        """
        hello a b
        a> 82 ~ 0001 "t" 00 => 90 ~ 0001 00
        b> 31 ~ "t" 'x' ; 30 ~ "t" 'y'
        a< 30 ~ "t" 'x'
        a< 30 ~ "t" 'y'
        b> 82 ~ 0001 "t" 00 => 90 ~ 0001 00
        b< 31 ~ "t" 'x'
        b.
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.8.4-3",
        "subscribing again loses no message that waits, and brings the retained one again",
        """
        stay a
        a> 82 ~ 0001 "t" 01 => 90 ~ 0001 01
        a-
        hello b
        b> 33 ~ "t" 0001 'x' => 40 02 0001
        back a
        a< 32 ~ "t" 0001 'x'
        a> 82 ~ 0002 "t" 00 => 90 ~ 0002 00
        a< 31 ~ "t" 'x'
        b> 32 ~ "t" 0002 'y' => 40 02 0002
        a< 30 ~ "t" 'y'
        a-
        back a
        a< 3a ~ "t" 0001 'x'
        a.
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.8.3-4 3.1.1 MQTT-4.8.0-1",
        "a QoS that is none closes the connection",
        """
        hello a
        a> 82 ~ 0001 "t" 03
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.8.3-4",
        "options of 5.0 are reserved bits in 3.1.1",
        """
        hello a
        a> 82 ~ 0001 "t" 04
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.14.1-1",
        "a DISCONNECT with a reason code is malformed in 3.1.1",
        """
        hello a
        a> e0 01 00
        a!
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.10.4-6 3.1.1 MQTT-3.10.4-2",
        "several filters are unsubscribed with one UNSUBACK, and nothing of them comes any more",
        """
        hello a b
        a> 82 ~ 0001 "t" 00 "u" 00 "v" 00 => 90 ~ 0001 00 00 00
        a> a2 ~ 0002 "t" "nothing" "u" => b0 02 0002
        b> 30 ~ "t" 'x' ; 30 ~ "u" 'y' ; 30 ~ "v" 'z'
        a< 30 ~ "v" 'z'
        a.
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.10.4-1",
        "a filter is unsubscribed as it was written, and not by what it matches",
        """
        hello a b
        a> 82 ~ 0001 "t/+" 00 => 90 ~ 0001 00
        a> a2 ~ 0002 "t/u" "#" => b0 02 0002
        b> 30 ~ "t/u" 'x'
        a< 30 ~ "t/u" 'x'
        a> a2 ~ 0003 "t/+" => b0 02 0003
        b> 30 ~ "t/u" 'y'
        a.
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.10.4-3",
        "a delivery that was begun is completed after UNSUBSCRIBE",
        """
        stay a
        hello b
        a> 82 ~ 0001 "t" 02 => 90 ~ 0001 02
        b> 34 ~ "t" 0001 'x' => 50 02 0001
        a< 34 ~ "t" 0001 'x'
        a> a2 ~ 0002 "t" => b0 02 0002
        a-
        back a
        a< 3c ~ "t" 0001 'x'
        a> 50 02 0001 => 62 02 0001
        a> 70 02 0001
        a.
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-4.3.3-1",
        "an unknown PUBREC is answered with PUBREL, so that the other side comes to an end",
        """
        hello a
        a> 50 02 0009 => 62 02 0009
        a> 70 02 0009
        a.
    """,
        ONLY_3,
    ),
]

ROWS: Final = [*CONNECTING, *SESSIONS, *MESSAGES]
