"""What only 5.0 has: aliases to the client, what a listener offers and tells, what a packet may not carry."""

from typing import Final

from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.limits import Limits
from tests.conformance.script import EVERY, ONLY_5, Row

ALIASES: Final = [
    Row(
        "MQTT-3.1.2-26 MQTT-3.3.2-11",
        "a client gets no topic alias above its maximum",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 22 0001 } "a" => connack 0 00
        a> 82 ~ 0001 {} "#" 02 => 90 ~ 0001 {} 02
        hello b
        b> 30 ~ "t" {} '1' ; 30 ~ "u" {} '2'
        a< 30 ~ "t" { 23 0001 } '1'
        a< 30 ~ "u" {} '2'
        b> 32 ~ "t" 0001 {} '3' => 40 02 0001
        a< 32 ~ "" 0001 { 23 0001 } '3'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-8 MQTT-3.3.2-11",
        "aliases begin at 1, and stay beside the message's own properties",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 22 0002 } "a" => connack 0 00
        a> 82 ~ 0001 {} "#" 00 => 90 ~ 0001 {} 00
        hello b
        b> 30 ~ "t" { 26 "k" "v" } '1' ; 30 ~ "u" {} '2' ; 30 ~ "t" { 26 "k" "v" } '3' ; 30 ~ "u" {} '4'
        a< 30 ~ "t" { 23 0001 26 "k" "v" } '1'
        a< 30 ~ "u" { 23 0002 } '2'
        a< 30 ~ "" { 23 0001 26 "k" "v" } '3'
        a< 30 ~ "" { 23 0002 } '4'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-7",
        "a new connection begins without aliases of the server's",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 22 0001 11 00000064 } "a" => connack 0 00
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        hello b
        b> 30 ~ "t" {} '1'
        a< 30 ~ "t" { 23 0001 } '1'
        a-
        a> 10 ~ "MQTT" 05 00 0000 { 22 0001 11 00000064 } "a" => connack 1 00
        b> 30 ~ "t" {} '2' ; 30 ~ "t" {} '3'
        a< 30 ~ "t" { 23 0001 } '2'
        a< 30 ~ "" { 23 0001 } '3'
        a-
        a> 10 ~ "MQTT" 05 00 0000 { 11 00000064 } "a" => connack 1 00
        b> 30 ~ "t" {} '4'
        a< 30 ~ "t" {} '4'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-12",
        "every alias from 1 to the server's maximum is taken",
        """
        hello a b
        a> 82 ~ 0001 {} "#" 00 => 90 ~ 0001 {} 00
        b> 30 ~ "t" { 23 0001 } '' ; 30 ~ "u" { 23 0002 } '' ; 30 ~ "v" { 23 0003 } ''
        a< 30 ~ "t" {} ''
        a< 30 ~ "u" {} ''
        a< 30 ~ "v" {} ''
        b> 30 ~ "" { 23 0003 } 'x' ; 30 ~ "" { 23 0001 } 'y' ; 30 ~ "" { 23 0002 } 'z'
        a< 30 ~ "v" {} 'x'
        a< 30 ~ "t" {} 'y'
        a< 30 ~ "u" {} 'z'
    """,
        ONLY_5,
    ),
]

OFFERED: Final = [
    Row(
        "MQTT-3.1.2-28",
        "response information is given to those who ask for it",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 19 01 } "a" => connack 0 00 response_information=replies/a
        b> 10 ~ "MQTT" 05 02 0000 { 19 00 } "b" => connack 0 00 response_information=None
        c> 10 ~ "MQTT" 05 02 0000 {} "c" => connack 0 00 response_information=None
    """,
        ONLY_5,
        capabilities=Capabilities(response_information="replies/%c"),
    ),
    Row(
        "§4.11 MQTT-3.2.2-7 MQTT-3.2.2-8",
        "a server may send its clients to another for a while",
        """
        a> 10 ~ "MQTT" 05 02 0000 {} "a" => connack 0 9c server_reference=other.example:1883
        a!
    """,
        ONLY_5,
        capabilities=Capabilities(server_reference="other.example:1883"),
    ),
    Row(
        "§4.11 MQTT-3.2.2-7 MQTT-3.2.2-8",
        "or for good",
        """
        a> 10 ~ "MQTT" 05 02 0000 {} "a" => connack 0 9d server_reference=other.example:1883
        a!
    """,
        ONLY_5,
        capabilities=Capabilities(server_reference="other.example:1883", server_moved=True),
    ),
    Row(
        "§3.3.2.3.2 MQTT-3.4.2-1 MQTT-3.5.2-1",
        "a payload that is not what it says is refused with 0x99, where the listener looks",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 32 ~ "t" 0001 { 01 01 } ff => 40 03 0001 99
        b> 34 ~ "t" 0002 { 01 01 } ff => 50 03 0002 99
        b> 30 ~ "t" { 01 01 } ff
        b> 32 ~ "t" 0003 { 01 01 } c385 => 40 02 0003
        a< 32 ~ "t" 0001 { 01 01 } c385
        b> 32 ~ "t" 0004 { 01 00 } ff => 40 02 0004
        a< 32 ~ "t" 0002 { 01 00 } ff
        a.
    """,
        ONLY_5,
        capabilities=Capabilities(check_payload_format=True),
    ),
    Row(
        "MQTT-3.3.2-4",
        "and is passed on as it is where it does not",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        b> 30 ~ "t" { 01 01 } ff
        a< 30 ~ "t" { 01 01 } ff
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.2.2-9 MQTT-3.2.2-10",
        "a server without QoS 1 says so, grants it, and closes a client that publishes with it",
        """
        a> 10 ~ "MQTT" 05 02 0000 {} "a" => connack 0 00 maximum_qos=0
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        a> 30 ~ "t" {} 'x' => 30 ~ "t" {} 'x'
        a> 32 ~ "t" 0001 {} 'x'
        a! 9b
    """,
        ONLY_5,
        capabilities=Capabilities(maximum_qos=0),
    ),
    Row(
        "§3.2.2.3.7",
        "what is not authorized is acknowledged with 0x87, and goes nowhere",
        """
        hello a b
        a> 82 ~ 0001 {} "$SYS/mine" 02 => 90 ~ 0001 {} 02
        b> 32 ~ "$SYS/mine" 0001 {} 'x' => 40 ~ 0001 87 {1F "clients may not publish to $SYS and below"}
        b> 34 ~ "$SYS/mine" 0002 {} 'x' => 50 ~ 0002 87 {1F "clients may not publish to $SYS and below"}
        a.
    """,
        ONLY_5,
    ),
]

TOLD: Final = [
    Row(
        "MQTT-3.1.2-29 MQTT-3.4.2-3 MQTT-3.5.2-3",
        "acknowledgements that tell of a message tell nothing to clients that do not ask, or have no room",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 17 00 } "a" => connack 0 00
        a> 32 ~ "t" 0001 {} 'x' => 40 03 0001 10
        a> 34 ~ "t" 0002 {} 'x' => 50 03 0002 10
        b> 10 ~ "MQTT" 05 02 0000 { 27 00000020 } "b" => connack 0 00
        b> 32 ~ "t" 0001 {} 'x' => 40 03 0001 10
        b> 34 ~ "t" 0002 {} 'x' => 50 03 0002 10
    """,
        ONLY_5,
        capabilities=Capabilities(tell_delivery=True),
    ),
    Row(
        "MQTT-3.1.2-29 MQTT-3.9.2-1 MQTT-3.9.2-2 MQTT-3.11.2-1 MQTT-3.11.2-2",
        "SUBACK and UNSUBACK have neither reason strings nor user properties for a client that asks for none",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 17 00 } "a" => connack 0 00
        a> 82 ~ 0001 {} "t/#" 01 "$queue/q" 01 "u" 01 => 90 ~ 0001 00 a2 8f 01
        a> a2 ~ 0002 {} "t" "u" => b0 ~ 0002 00 11 00
    """,
        ONLY_5,
        capabilities=Capabilities(wildcards_available=False),
    ),
    Row(
        "MQTT-3.9.2-1 MQTT-3.4.2-2 MQTT-3.5.2-2",
        "a reserved topic is refused with a reason string where the client has room for it",
        """
        hello a
        a> 82 ~ 0001 {} "$queue/q/$ack" 01 => 90 ~ 0001 { 1f "$queue/…: no message comes on its control topics" } 8f
        a> 32 ~ "$stream/q" 0001 {} 'x' => 40 ~ 0001 90 { 1f "$stream/…: there is no such stream or command" }
        a> 34 ~ "$stream/q" 0002 {} 'x' => 50 ~ 0002 90 { 1f "$stream/…: there is no such stream or command" }
        b> 10 ~ "MQTT" 05 02 0000 { 27 00000020 } "b" => connack 0 00
        b> 82 ~ 0001 {} "$queue/q/$ack" 01 => 90 ~ 0001 {} 8f
        b> 32 ~ "$stream/q" 0001 {} 'x' => 40 03 0001 90
        b> 34 ~ "$stream/q" 0002 {} 'x' => 50 03 0002 90
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.14.2-2 MQTT-3.14.2-4",
        "a server's DISCONNECT has no session expiry interval and no user properties",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 17 00 11 00000064 } "a" => connack 0 00
        a> 10 ~ "MQTT" 05 02 0000 {} "a" => e0 01 82
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.2.2-20 MQTT-3.2.2-19",
        "a CONNACK that lets a client in has neither reason string nor user properties",
        """
        a> 10 ~ "MQTT" 05 02 0000 {} "a" => connack 0 00 reason_string=None user_properties=[]
    """,
        ONLY_5,
    ),
]

COPIES: Final = [
    Row(
        "MQTT-3.3.4-5",
        "a shared subscription's copy carries its identifier, and the other copy the other's",
        """
        hello a b
        a> 82 ~ 0001 { 0b 01 } "$share/g/t" 00 => 90 ~ 0001 {} 00
        a> 82 ~ 0002 { 0b 02 } "t" 00 => 90 ~ 0002 {} 00
        b> 30 ~ "t" {} 'x'
        a<* 30 ~ "t" { 0b 01 } 'x' ; 30 ~ "t" { 0b 02 } 'x'
        b> 32 ~ "t" 0001 { 26 "k" "v" } 'y' => 40 02 0001
        a<* 30 ~ "t" { 0b 01 26 "k" "v" } 'y' ; 30 ~ "t" { 0b 02 26 "k" "v" } 'y'
        a.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.4-5",
        "of several retained copies each carries the identifier of the subscription that found it",
        """
        hello a b
        b> 31 ~ "t" {} 'x'
        a> 82 ~ 0001 { 0b 01 } "t" 00 => 90 ~ 0001 {} 00
        a< 31 ~ "t" { 0b 01 } 'x'
        a> 82 ~ 0002 { 0b 02 } "#" 00 => 90 ~ 0002 {} 00
        a< 31 ~ "t" { 0b 02 } 'x'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.8.2-3",
        "a shared message has the lower of its QoS and the one granted",
        """
        hello a b
        a> 82 ~ 0001 {} "$share/g/t" 01 => 90 ~ 0001 {} 01
        b> 30 ~ "t" {} '0' ; 34 ~ "t" 0001 {} '2' => 50 02 0001
        a< 30 ~ "t" {} '0'
        a< 32 ~ "t" 0001 {} '2'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.8.2-1",
        "a share name of one character is enough",
        """
        hello a b
        a> 82 ~ 0001 {} "$share/g//" 00 => 90 ~ 0001 {} 00
        b> 30 ~ "/" {} 'x'
        a< 30 ~ "/" {} 'x'
    """,
        ONLY_5,
    ),
    Row(
        "§4.8.2",
        "a QoS 1 message goes to another member when the session of the one who had it ends",
        """
        stay a
        hello b c
        a> 82 ~ 0001 {} "$share/g/t" 01 => 90 ~ 0001 {} 01
        b> 82 ~ 0001 {} "$share/g/t" 01 => 90 ~ 0001 {} 01
        c> 32 ~ "t" 0001 {} 'x' => 40 02 0001
        a< 32 ~ "t" 0001 {} 'x'
        a-
        b.
        hello a
        b< 32 ~ "t" 0001 {} 'x'
    """,
        ONLY_5,
    ),
]

MALFORMED: Final = [
    Row(
        "MQTT-3.1.2-9",
        "a will that is announced is there",
        """
        a> 10 ~ "MQTT" 05 06 0000 {} "a" => connack 0 81
        a!
        b> 10 ~ "MQTT" 05 06 0000 {} "b" {} "w" => connack 0 81
        b!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.2-16 MQTT-3.1.2-18 MQTT-3.1.3-1",
        "a user name or password that is not announced is not there",
        """
        a> 10 ~ "MQTT" 05 02 0000 {} "a" "u" => connack 0 81
        a!
        b> 10 ~ "MQTT" 05 82 0000 {} "b" "u" "p" => connack 0 81
        b!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.2-17 MQTT-3.1.2-19",
        "a user name or password that is announced is there",
        """
        a> 10 ~ "MQTT" 05 82 0000 {} "a" => connack 0 81
        a!
        b> 10 ~ "MQTT" 05 c2 0000 {} "b" "u" => connack 0 81
        b!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.3-12",
        "a user name is UTF-8",
        """
        a> 10 ~ "MQTT" 05 82 0000 {} "a" 0001 ff => connack 0 81
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-1 MQTT-1.5.4-1",
        "a topic name is UTF-8",
        """
        hello a
        a> 30 ~ 0002 c080 {} 'x'
        a! 81
    """,
        EVERY,
    ),
    Row(
        "MQTT-3.8.3-1 MQTT-1.5.4-1",
        "a topic filter is UTF-8",
        """
        hello a
        a> 82 ~ 0001 {} 0003 eda080 00
        a! 81
    """,
        EVERY,
    ),
    Row(
        "MQTT-3.10.3-1 MQTT-1.5.4-1",
        "a topic filter to unsubscribe is UTF-8",
        """
        hello a
        a> a2 ~ 0001 {} 0001 ff
        a! 81
    """,
        EVERY,
    ),
    Row(
        "MQTT-1.5.4-2 MQTT-4.7.3-2",
        "a topic filter has no U+0000",
        """
        hello a
        a> 82 ~ 0001 {} 0003 't' 00 't' 00
        a! 81
    """,
        EVERY,
    ),
    Row(
        "MQTT-3.3.2-13",
        "a response topic is UTF-8",
        """
        hello a
        a> 30 ~ "t" { 08 0001 ff } 'x'
        a! 81
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-19",
        "a content type is UTF-8",
        """
        hello a
        a> 30 ~ "t" { 03 0001 ff } 'x'
        a! 81
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-1.5.7-1",
        "name and value of a user property are UTF-8",
        """
        hello a b
        a> 30 ~ "t" { 26 0001 ff "v" } 'x'
        a! 81
        b> 30 ~ "t" { 26 "k" 0001 ff } 'x'
        b! 81
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-2.1.3-1",
        "the flags of PINGREQ and PUBACK are 0",
        """
        hello a b
        a> c1 00
        a! 81
        b> 42 02 0001
        b! 81
    """,
        EVERY,
    ),
    Row(
        "MQTT-3.4.2-1 MQTT-3.5.2-1 MQTT-3.6.2-1 MQTT-3.7.2-1",
        "a reason code that is none of its packet's is a protocol error",
        """
        hello a b c d
        a> 40 03 0001 01
        a! 82
        b> 50 03 0001 92
        b! 82
        c> 62 03 0001 10
        c! 82
        d> 70 03 0001 80
        d! 82
    """,
        ONLY_5,
    ),
]

LIMITED: Final = [
    Row(
        "MQTT-3.4.2-1 MQTT-3.5.2-1",
        "a message that has no room is acknowledged with 0x97",
        """
        stay a
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        a-
        hello b
        b> 32 ~ "t" 0001 {} 'x' => 40 02 0001
        b> 32 ~ "t" 0002 {} 'y' => 40 03 0002 97
        b> 34 ~ "t" 0003 {} 'z' => 50 03 0003 97
    """,
        ONLY_5,
        Limits(max_queued_messages=1),
    ),
]

ROWS: Final = [*ALIASES, *OFFERED, *TOLD, *COPIES, *MALFORMED, *LIMITED]
