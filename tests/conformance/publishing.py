"""PUBLISH from the client and to it: acknowledgements, properties, retained messages, aliases (5.0 §3.3 to §3.7)."""

from typing import Final

from mqttlite.core.limits import Limits
from tests.conformance.script import ONLY_3, ONLY_5, SINCE_3_1, Row

QOS: Final = [
    Row(
        "MQTT-4.3.1-1 MQTT-2.2.1-2",
        "a QoS 0 message is delivered with QoS 0 and without DUP",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 30 ~ "t" {} 'x'
        a< 30 ~ "t" {} 'x'
        b.
    """,
        SINCE_3_1,
    ),
    Row(
        "MQTT-3.3.4-1 MQTT-4.3.2-1 MQTT-4.3.2-2 MQTT-4.3.2-4 MQTT-2.2.1-5",
        "a QoS 1 message is answered with PUBACK",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        b> 32 ~ "t" 1234 {} 'x' => 40 02 1234
        a< 32 ~ "t" 0001 {} 'x'
        a> 40 02 0001
        a.
    """,
        SINCE_3_1,
    ),
    Row(
        "MQTT-3.3.4-1 MQTT-4.3.3-8 MQTT-4.3.3-1 MQTT-4.3.3-2 MQTT-4.3.3-4 MQTT-4.3.3-11 MQTT-2.2.1-5",
        "a QoS 2 message is answered with PUBREC, and its PUBREL with PUBCOMP",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 34 ~ "t" 1234 {} 'x' => 50 02 1234
        b> 62 02 1234 => 70 02 1234
        a< 34 ~ "t" 0001 {} 'x'
        a> 50 02 0001 => 62 02 0001
        a> 70 02 0001
        a.
    """,
        SINCE_3_1,
    ),
    Row(
        "MQTT-4.3.3-10",
        "until PUBREL the same identifier is the same message, whatever it says",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        b> 34 ~ "t" 1234 {} 'x' => 50 02 1234
        b> 3c ~ "t" 1234 {} 'x' => 50 02 1234
        b> 34 ~ "t" 1234 {} 'y' => 50 02 1234
        b> 62 02 1234 => 70 02 1234
        a< 30 ~ "t" {} 'x'
        a.
    """,
    ),
    Row(
        "MQTT-4.3.3-12",
        "after PUBCOMP the identifier is free for another message",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        b> 34 ~ "t" 1234 {} 'x' => 50 02 1234
        b> 62 02 1234 => 70 02 1234
        b> 34 ~ "t" 1234 {} 'y' => 50 02 1234
        a< 30 ~ "t" {} 'x'
        a< 30 ~ "t" {} 'y'
    """,
    ),
    Row(
        "3.1.1 MQTT-4.3.3-2",
        "an unknown PUBREL is answered with PUBCOMP",
        """
        hello a
        a> 62 02 0009 => 70 02 0009
        a> 62 02 0009 => 70 02 0009
    """,
        ONLY_3,
    ),
    Row(
        "§3.7.2.1 MQTT-3.7.2-1 MQTT-3.7.2-2 MQTT-3.7.2-3",
        "an unknown PUBREL is answered with PUBCOMP 0x92",
        """
        hello a
        a> 62 02 0009 => 70 03 0009 92
    """,
        ONLY_5,
    ),
    Row(
        "§3.6.2.1 MQTT-3.6.2-1 MQTT-3.6.2-2 MQTT-3.6.2-3",
        "an unknown PUBREC is answered with PUBREL 0x92",
        """
        hello a
        a> 50 02 0009 => 62 03 0009 92
        a> 70 03 0009 92
        a.
    """,
        ONLY_5,
    ),
    Row(
        "§4.3.3",
        "a PUBREC that says what went wrong is not answered when it is unknown",
        """
        hello a
        a> 50 03 0009 80
        a.
    """,
        ONLY_5,
    ),
    Row(
        "§4.3.2",
        "a late or unknown PUBACK or PUBCOMP is harmless",
        """
        hello a
        a> 40 02 0009 ; 70 02 0009
        a.
    """,
    ),
    Row(
        "MQTT-4.4.0-2",
        "a PUBREC of 0x80 or more ends the delivery",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 30 ~ "t" {} 'x' ; 34 ~ "t" 0001 {} 'y' => 50 02 0001
        a< 30 ~ "t" {} 'x'
        a< 34 ~ "t" 0001 {} 'y'
        a> 50 ~ 0001 97 {}
        a.
        a> 50 ~ 0001 97 {}
        a.
    """,
        ONLY_5,
    ),
    Row(
        "§3.4.2",
        "a PUBACK may carry a reason string and user properties",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        b> 32 ~ "t" 0001 {} 'x' => 40 02 0001
        a< 32 ~ "t" 0001 {} 'x'
        a> 40 ~ 0001 80 { 1f "no room" 26 "k" "v" }
        a.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.3.2-3",
        "a PUBREC for a message of QoS 1 is out of order",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        b> 32 ~ "t" 0001 {} 'x' => 40 02 0001
        a< 32 ~ "t" 0001 {} 'x'
        a> 50 02 0001
        a! 82
    """,
    ),
    Row(
        "MQTT-4.3.3-3",
        "a PUBACK for a message of QoS 2 is out of order",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 34 ~ "t" 0001 {} 'x' => 50 02 0001
        a< 34 ~ "t" 0001 {} 'x'
        a> 40 02 0001
        a! 82
    """,
    ),
    Row(
        "MQTT-4.3.3-3",
        "a PUBACK for a released message is out of order",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 34 ~ "t" 0001 {} 'x' => 50 02 0001
        a< 34 ~ "t" 0001 {} 'x'
        a> 50 02 0001 => 62 02 0001
        a> 40 02 0001
        a! 82
    """,
    ),
    Row(
        "MQTT-4.3.3-5",
        "a PUBCOMP for a message that was not released is out of order",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 34 ~ "t" 0001 {} 'x' => 50 02 0001
        a< 34 ~ "t" 0001 {} 'x'
        a> 70 02 0001
        a! 82
    """,
    ),
    Row(
        "§4.3.3",
        "a PUBREC that comes again is answered again",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 34 ~ "t" 0001 {} 'x' => 50 02 0001
        a< 34 ~ "t" 0001 {} 'x'
        a> 50 02 0001 => 62 02 0001
        a> 50 02 0001 => 62 02 0001
        a> 70 02 0001
        a> 50 02 0001
    """,
    ),
    Row(
        "§3.4.2.1 MQTT-3.4.2-1 MQTT-3.4.2-2 MQTT-3.5.2-1 MQTT-3.5.2-2",
        "a message that nobody subscribes to is acknowledged with 0x10",
        """
        hello b
        b> 32 ~ "t" 0001 {} 'x' => 40 03 0001 10
        b> 34 ~ "t" 0002 {} 'x' => 50 03 0002 10
        b> 62 02 0002 => 70 02 0002
    """,
        ONLY_5,
    ),
    Row(
        "3.1.1 §3.4",
        "a message that nobody subscribes to is acknowledged as any other",
        """
        hello b
        b> 32 ~ "t" 0001 'x' => 40 02 0001
        b> 34 ~ "t" 0002 'x' => 50 02 0002
        b> 62 02 0002 => 70 02 0002
    """,
        ONLY_3,
    ),
    Row(
        "MQTT-3.8.4-8",
        "a message is delivered with the lower of its QoS and the one granted",
        """
        hello a b
        a> 82 ~ 0001 {} "0" 00 "1" 01 "2" 02 => 90 ~ 0001 {} 00 01 02
        b> 34 ~ "0" 0001 {} 'x' => 50 02 0001
        b> 34 ~ "1" 0002 {} 'x' => 50 02 0002
        b> 32 ~ "2" 0003 {} 'x' => 40 02 0003
        b> 30 ~ "2" {} 'y'
        a< 30 ~ "0" {} 'x'
        a< 32 ~ "1" 0001 {} 'x'
        a< 32 ~ "2" 0002 {} 'x'
        a< 30 ~ "2" {} 'y'
    """,
    ),
    Row(
        "MQTT-4.6.0-6 MQTT-4.6.0-5",
        "messages of one topic and QoS arrive in order",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        b> 32 ~ "t" 0001 {} '1' ; 32 ~ "t" 0002 {} '2' ; 32 ~ "t" 0003 {} '3'
        a< 32 ~ "t" 0001 {} '1'
        a< 32 ~ "t" 0002 {} '2'
        a< 32 ~ "t" 0003 {} '3'
        b< 40 02 0001
        b< 40 02 0002
        b< 40 02 0003
    """,
    ),
    Row(
        "MQTT-3.3.1-3",
        "DUP from the publisher is not passed on",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        b> 3a ~ "t" 0001 {} 'x' => 40 02 0001
        a< 32 ~ "t" 0001 {} 'x'
    """,
    ),
    Row(
        "§3.3.3",
        "a payload may be empty",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 30 ~ "t" {} ; 32 ~ "t" 0001 {}
        a< 30 ~ "t" {}
        a< 32 ~ "t" 0001 {}
    """,
        SINCE_3_1,
    ),
    Row(
        "§3.3",
        "the two versions hear each other",
        """
        hello a
        b> 10 ~ "MQTT" 04 02 0000 0001 'b' => 20 02 00 00
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 30 ~ "t" 'x' ; 32 ~ "t" 0001 'y' => 40 02 0001
        a< 30 ~ "t" {} 'x'
        a< 32 ~ "t" 0001 {} 'y'
        b> 82 ~ 0001 "u" 02 => 90 ~ 0001 02
        a> 30 ~ "u" { 26 "k" "v" } 'x' ; 30 ~ "u" {} 'y'
        b< 30 ~ "u" 'x'
        b< 30 ~ "u" 'y'
    """,
        ONLY_5,
    ),
]

RETAINED: Final = [
    Row(
        "MQTT-3.3.1-5 3.1.1 MQTT-3.3.1-6 3.1.1 MQTT-3.3.1-8",
        "a retained message is kept, and given to a new subscription",
        """
        hello a b
        b> 31 ~ "t" {} 'x'
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a< 31 ~ "t" {} 'x'
        a.
    """,
        SINCE_3_1,
    ),
    Row(
        "MQTT-3.3.1-5 3.1.1 MQTT-3.3.1-7",
        "a retained message replaces the one before, QoS 0 or not",
        """
        hello a b
        b> 33 ~ "t" 0001 {} 'x' ; 31 ~ "t" {} 'y'
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a< 31 ~ "t" {} 'y'
        a.
    """,
    ),
    Row(
        "MQTT-3.3.1-6",
        "an empty retained message removes the one before",
        """
        hello a b
        b> 31 ~ "t" {} 'x' ; 31 ~ "t" {}
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a.
    """,
    ),
    Row(
        "MQTT-3.3.1-7",
        "an empty retained message is not kept, and delivered as any other",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        b> 31 ~ "t" {}
        a< 30 ~ "t" {}
        b> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        b.
    """,
    ),
    Row(
        "MQTT-3.3.1-8",
        "a message that is not retained leaves the retained one alone",
        """
        hello a b
        b> 31 ~ "t" {} 'x' ; 30 ~ "t" {} 'y' ; 30 ~ "t" {}
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a< 31 ~ "t" {} 'x'
        a.
    """,
    ),
    Row(
        "MQTT-3.3.1-12",
        "to a standing subscription a retained message comes with RETAIN 0",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        b> 31 ~ "t" {} 'x' ; 33 ~ "t" 0001 {} 'y'
        a< 30 ~ "t" {} 'x'
        a< 32 ~ "t" 0001 {} 'y'
    """,
        SINCE_3_1,
    ),
    Row(
        "MQTT-3.3.1-13",
        "with Retain As Published RETAIN is as it was published",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 09 => 90 ~ 0001 {} 01
        b> 32 ~ "t" 0001 {} 'x' ; 33 ~ "t" 0002 {} 'y' ; 30 ~ "t" {} 'z' ; 31 ~ "t" {}
        a< 32 ~ "t" 0001 {} 'x'
        a< 33 ~ "t" 0002 {} 'y'
        a< 30 ~ "t" {} 'z'
        a< 31 ~ "t" {}
    """,
        ONLY_5,
    ),
    Row(
        "3.1.1 MQTT-3.8.4-3 3.1.1 MQTT-3.3.1-8",
        "subscribing again gives the retained messages again",
        """
        hello a b
        b> 31 ~ "t" {} 'x'
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a< 31 ~ "t" {} 'x'
        a> 82 ~ 0002 {} "t" 00 => 90 ~ 0002 {} 00
        a< 31 ~ "t" {} 'x'
    """,
        SINCE_3_1,
    ),
    Row(
        "MQTT-3.3.1-9 MQTT-3.8.4-4",
        "with Retain Handling 0 every subscribing gives the retained messages",
        """
        hello a b
        b> 31 ~ "t" {} 'x'
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a< 31 ~ "t" {} 'x'
        a> 82 ~ 0002 {} "t" 01 => 90 ~ 0002 {} 01
        a< 31 ~ "t" {} 'x'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.1-10",
        "with Retain Handling 1 only a new subscription gives them",
        """
        hello a b
        b> 31 ~ "t" {} 'x'
        a> 82 ~ 0001 {} "t" 11 => 90 ~ 0001 {} 01
        a< 31 ~ "t" {} 'x'
        a> 82 ~ 0002 {} "t" 11 => 90 ~ 0002 {} 01
        a.
        a> a2 ~ 0003 {} "t" => b0 ~ 0003 {} 00
        a> 82 ~ 0004 {} "t" 11 => 90 ~ 0004 {} 01
        a< 31 ~ "t" {} 'x'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.1-11",
        "with Retain Handling 2 no subscribing gives them",
        """
        hello a b
        b> 31 ~ "t" {} 'x'
        a> 82 ~ 0001 {} "t" 21 => 90 ~ 0001 {} 01
        a> 82 ~ 0002 {} "t" 21 => 90 ~ 0002 {} 01
        a.
    """,
        ONLY_5,
    ),
    Row(
        "§3.3.1.3 3.1.1 MQTT-3.3.1-6",
        "a wildcard gives each retained message once",
        """
        hello a b
        b> 31 ~ "TopicA/B" {} '0' ; 33 ~ "Topic/C" 0001 {} '1' ; 35 ~ "TopicA/C" 0002 {} '2'
        a> 82 ~ 0001 {} "+/+" 00 => 90 ~ 0001 {} 00
        a<* 31 ~ "TopicA/B" {} '0' ; 31 ~ "Topic/C" {} '1' ; 31 ~ "TopicA/C" {} '2'
        a.
    """,
    ),
    Row(
        "MQTT-3.8.4-8",
        "a retained message has the lower of its QoS and the one granted",
        """
        hello a b
        b> 35 ~ "t" 0001 {} 'x' ; 31 ~ "u" {} 'y'
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        a< 35 ~ "t" 0001 {} 'x'
        a> 82 ~ 0002 {} "t" 01 => 90 ~ 0002 {} 01
        a< 33 ~ "t" 0002 {} 'x'
        a> 82 ~ 0003 {} "u" 02 => 90 ~ 0003 {} 02
        a< 31 ~ "u" {} 'y'
    """,
    ),
    Row(
        "§3.3.1.3 3.1.1 MQTT-3.3.1-6",
        "each of two overlapping subscriptions finds what is retained",
        """
        hello a b
        b> 31 ~ "t/u" {} 'x'
        a> 82 ~ 0001 {} "t/#" 00 "t/+" 00 => 90 ~ 0001 {} 00 00
        a< 31 ~ "t/u" {} 'x'
        a< 31 ~ "t/u" {} 'x'
        a.
    """,
    ),
    Row(
        "§3.3.1.3 3.1.1 MQTT-3.1.2-7",
        "a retained message outlives its publisher's session",
        """
        hello b
        b> 31 ~ "t" {} 'x'
        b> e0 00
        b!
        hello a
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a< 31 ~ "t" {} 'x'
    """,
    ),
    Row(
        "§3.3.2.3.3",
        "a retained message expires",
        """
        hello a b
        b> 31 ~ "t" { 02 0000000a } 'x' ; 31 ~ "u" { 02 0000003c } 'x'
        + 11
        a> 82 ~ 0001 {} "#" 01 => 90 ~ 0001 {} 01
        a< 31 ~ "u" { 02 00000031 } 'x'
        a.
    """,
        ONLY_5,
    ),
    Row(
        "§3.3.2.3",
        "a retained message keeps its properties",
        """
        hello a b
        b> 31 ~ "t" { 26 "a" "2" 26 "c" "3" } 'x'
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a< 31 ~ "t" { 26 "a" "2" 26 "c" "3" } 'x'
    """,
        ONLY_5,
    ),
]

PROPERTIES: Final = [
    Row(
        "MQTT-3.3.2-4",
        "the payload format indicator is passed on",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 30 ~ "t" { 01 01 } 'x' ; 32 ~ "t" 0001 { 01 00 } 'y' => 40 02 0001
        a< 30 ~ "t" { 01 01 } 'x'
        a< 32 ~ "t" 0001 { 01 00 } 'y'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-17 MQTT-3.3.2-18",
        "user properties are passed on, all of them and in their order",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 30 ~ "t" { 26 "b" "2" 26 "a" "1" 26 "b" "2" 26 "" "" } 'x'
        a< 30 ~ "t" { 26 "b" "2" 26 "a" "1" 26 "b" "2" 26 "" "" } 'x'
        b> 34 ~ "t" 0001 { 26 "b" "2" 26 "a" "1" } 'x' => 50 02 0001
        a< 34 ~ "t" 0001 { 26 "b" "2" 26 "a" "1" } 'x'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-20",
        "the content type is passed on",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        b> 30 ~ "t" { 03 "text/plain" } 'x'
        a< 30 ~ "t" { 03 "text/plain" } 'x'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-15 MQTT-3.3.2-16",
        "response topic and correlation data are passed on",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        b> 32 ~ "t" 0001 { 08 "answers" 09 "334" } 'x' => 40 02 0001
        a< 32 ~ "t" 0001 { 08 "answers" 09 "334" } 'x'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-14",
        "a response topic has no wildcard",
        """
        hello a
        a> 30 ~ "t" { 08 "answers/#" } 'x'
        a! 82
    """,
        ONLY_5,
    ),
    Row(
        "§3.3.2.3.5",
        "a response topic is not empty",
        """
        hello a
        a> 32 ~ "t" 0001 { 08 "" } 'x'
        a! 82
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-14",
        "a will's response topic has no wildcard",
        """
        a> 10 ~ "MQTT" 05 06 0000 {} "a" { 08 "+" } "w" "x" => connack 0 82
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-6",
        "the message expiry interval shrinks while a message waits",
        """
        stay a
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a-
        hello b
        b> 32 ~ "t" 0001 { 02 00000006 } 'x' => 40 02 0001
        + 3
        back a
        a< 32 ~ "t" 0001 { 02 00000003 } 'x'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-5",
        "a message that waited for too long is not sent",
        """
        stay a
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        a-
        hello b
        b> 32 ~ "t" 0001 { 02 00000001 } 'x' => 40 02 0001
        b> 34 ~ "t" 0002 { 02 00000001 } 'y' => 50 02 0002
        b> 32 ~ "t" 0003 { 02 00000009 } 'z' => 40 02 0003
        + 3
        back a
        a< 32 ~ "t" 0001 { 02 00000006 } 'z'
        a.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-6",
        "what does not wait has the expiry it came with",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        b> 30 ~ "t" { 02 00000001 } 'x' ; 30 ~ "t" { 02 00000000 } 'y' ; 30 ~ "t" { 02 ffffffff } 'z'
        a< 30 ~ "t" { 02 00000001 } 'x'
        a< 30 ~ "t" { 02 00000000 } 'y'
        a< 30 ~ "t" { 02 ffffffff } 'z'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.4-6",
        "a client's PUBLISH has no subscription identifier",
        """
        hello a
        a> 30 ~ "t" { 0b 01 } 'x'
        a! 82
    """,
        ONLY_5,
    ),
    Row(
        "§3.3.2.3.4",
        "a topic alias stands for the topic it was given for",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 30 ~ "t" { 23 0001 } 'x'
        a< 30 ~ "t" {} 'x'
        b> 32 ~ "" 0001 { 23 0001 } 'y' => 40 02 0001
        a< 32 ~ "t" 0001 {} 'y'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-12",
        "a topic alias may be given again",
        """
        hello a b
        a> 82 ~ 0001 {} "#" 00 => 90 ~ 0001 {} 00
        b> 30 ~ "t" { 23 0003 } 'x' ; 30 ~ "u" { 23 0003 } 'y' ; 30 ~ "" { 23 0003 } 'z'
        a< 30 ~ "t" {} 'x'
        a< 30 ~ "u" {} 'y'
        a< 30 ~ "u" {} 'z'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-8",
        "topic alias 0 is invalid",
        """
        hello a
        a> 30 ~ "t" { 23 0000 } 'x'
        a! 94
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-9",
        "a topic alias above the server's maximum is invalid",
        """
        hello a
        a> 30 ~ "t" { 23 0004 } 'x'
        a! 94
    """,
        ONLY_5,
    ),
    Row(
        "§3.3.2.3.4",
        "a topic alias that was not given is a protocol error",
        """
        hello a
        a> 30 ~ "" { 23 0001 } 'x'
        a! 82
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-7",
        "topic aliases end with their connection",
        """
        stay a
        a> 30 ~ "t" { 23 0001 } 'x'
        a> e0 00
        a!
        back a
        a> 30 ~ "" { 23 0001 } 'x'
        a! 82
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.2-27",
        "no topic alias is sent to a client that takes none",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        b> 30 ~ "t" { 23 0001 } 'x' ; 30 ~ "" { 23 0001 } 'x'
        a< 30 ~ "t" {} 'x'
        a< 30 ~ "t" {} 'x'
    """,
        ONLY_5,
    ),
]

MORE_QOS: Final = [
    Row(
        "MQTT-4.3.2-5",
        "after PUBACK the same identifier is another message, DUP or not",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        b> 32 ~ "t" 0001 {} 'x' => 40 02 0001
        b> 3a ~ "t" 0001 {} 'x' => 40 02 0001
        a< 30 ~ "t" {} 'x'
        a< 30 ~ "t" {} 'x'
    """,
    ),
    Row(
        "MQTT-4.3.3-9",
        "after a PUBREC of 0x80 or more the same identifier is another message",
        """
        stay a
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        a-
        hello b
        b> 34 ~ "t" 0001 {} 'x' => 50 02 0001
        b> 34 ~ "t" 0002 {} 'y' => 50 03 0002 97
        b> 62 02 0002 => 70 03 0002 92
        back a
        a< 34 ~ "t" 0001 {} 'x'
        b> 34 ~ "t" 0002 {} 'z' => 50 02 0002
        a< 34 ~ "t" 0002 {} 'z'
    """,
        ONLY_5,
        Limits(max_queued_messages=1),
    ),
    Row(
        "MQTT-4.3.3-7",
        "a message that was sent before it expired is sent again after",
        """
        stay a
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        hello b
        b> 34 ~ "t" 0001 { 02 00000005 } 'x' => 50 02 0001
        a< 34 ~ "t" 0001 { 02 00000005 } 'x'
        a-
        + 9
        back a
        a< 3c ~ "t" 0001 { 02 00000001 } 'x'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.3.3-13",
        "the acknowledgement of a message that has expired goes on",
        """
        hello a
        a> 34 ~ "t" 0001 { 02 00000001 } 'x' => 50 03 0001 10
        + 9
        a> 62 02 0001 => 70 02 0001
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-2.2.1-4",
        "an identifier that is in use is not used for another message",
        """
        stay a
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        hello b
        b> 34 ~ "t" 0001 {} '1' ; 32 ~ "t" 0002 {} '2' => 50 02 0001
        a< 34 ~ "t" 0001 {} '1'
        a< 32 ~ "t" 0002 {} '2'
        a> 40 02 0002
        a> 50 02 0001 => 62 02 0001
        b> 32 ~ "t" 0003 {} '3' ; 32 ~ "t" 0004 {} '4'
        a< 32 ~ "t" 0003 {} '3'
        a< 32 ~ "t" 0004 {} '4'
    """,
    ),
    Row(
        "MQTT-2.2.1-4",
        "the identifiers of the two sides have nothing to do with each other",
        """
        hello a
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        a> 34 ~ "t" 0001 {} 'x'
        a<* 34 ~ "t" 0001 {} 'x' ; 50 02 0001
        a> 62 02 0001 => 70 02 0001
        a> 50 02 0001 => 62 02 0001
        a> 70 02 0001
        a.
    """,
    ),
    Row(
        "MQTT-3.6.1-1",
        "the flags of PUBREL are 0010",
        """
        hello a
        a> 60 02 0001
        a! 81
    """,
    ),
    Row(
        "MQTT-3.15.1-1",
        "the flags of AUTH are reserved",
        """
        hello a
        a> f1 00
        a! 81
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.4.0-2",
        "what a client refused is not sent again",
        """
        stay a
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        hello b
        b> 32 ~ "t" 0001 {} '1' ; 34 ~ "t" 0002 {} '2'
        a< 32 ~ "t" 0001 {} '1'
        a< 34 ~ "t" 0002 {} '2'
        a> 40 03 0001 97
        a> 50 03 0002 97
        a-
        back a
        a.
    """,
        ONLY_5,
    ),
]

FAULTS: Final = [
    Row(
        "MQTT-3.3.2-2 MQTT-4.7.0-1",
        "a topic name has no wildcard",
        """
        hello a
        a> 30 ~ "t/#" {} 'x'
        a! 90
    """,
        SINCE_3_1,
    ),
    Row(
        "MQTT-3.3.2-2",
        "a topic name has no + either, at any QoS",
        """
        hello a
        a> 32 ~ "t/+/u" 0001 {} 'x'
        a! 90
    """,
    ),
    Row(
        "3.1.1 MQTT-4.7.3-1",
        "a topic name is not empty",
        """
        hello a
        a> 30 ~ "" 'x'
        a!
    """,
        ONLY_3,
    ),
    Row(
        "§3.3.2.1",
        "an empty topic name without an alias is a protocol error",
        """
        hello a
        a> 30 ~ "" {} 'x'
        a! 82
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.7.3-2",
        "a topic name has no U+0000",
        """
        hello a
        a> 30 ~ 0003 't' 00 't' {} 'x'
        a! 81
    """,
    ),
    Row(
        "MQTT-1.5.4-3",
        "U+FEFF is a character as any other, and stays where it is",
        """
        hello a b
        a> 82 ~ 0001 {} 0004 efbbbf 't' 00 => 90 ~ 0001 {} 00
        b> 30 ~ 0004 efbbbf 't' {} 'x' ; 30 ~ "t" {} 'y'
        a< 30 ~ 0004 efbbbf 't' {} 'x'
        a.
    """,
    ),
    Row(
        "§1.5.4",
        "a topic name may have characters of four bytes, and control characters",
        """
        hello a b
        a> 82 ~ 0001 {} 0005 'A' f0aa9b94 00 "#" 00 => 90 ~ 0001 {} 00 00
        b> 30 ~ 0005 'A' f0aa9b94 {} 'x'
        a< 30 ~ 0005 'A' f0aa9b94 {} 'x'
        b> 30 ~ 0001 1f {} 'x'
        a< 30 ~ 0001 1f {} 'x'
    """,
    ),
    Row(
        "MQTT-3.3.1-4",
        "a topic that is known excuses nothing: both QoS bits",
        """
        hello a
        a> 30 ~ "t" {} 'x' ; 36 ~ "t" 0002 {} 'x'
        a! 81
    """,
    ),
    Row(
        "MQTT-2.2.1-3",
        "a topic that is known excuses nothing: packet identifier zero",
        """
        hello a
        a> 30 ~ "t" {} 'x' ; 32 ~ "t" 0000 {} 'x'
        a! 81
    """,
    ),
    Row(
        "MQTT-3.3.1-2",
        "a topic that is known excuses nothing: DUP at QoS 0",
        """
        hello a
        a> 30 ~ "t" {} 'x' ; 38 ~ "t" {} 'x'
        a! 81
    """,
    ),
    Row(
        "MQTT-4.13.1-1",
        "what stands before the fault is done",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        b> 30 ~ "t" {} 'x' ; 30 ~ "t" {} 'y' ; 36 ~ "t" 0001 {} 'z' ; 30 ~ "t" {} 'w'
        b! 81
        a< 30 ~ "t" {} 'x'
        a< 30 ~ "t" {} 'y'
        a.
    """,
    ),
    Row(
        "§3.2.2.3.6 3.1.1 MQTT-4.8.0-2",
        "a packet above the server's Maximum Packet Size is too large",
        """
        hello a
        a> 30 ~ "t" {} 'x' * 4100
        a! 95
    """,
    ),
    Row(
        "§3.2.2.3.6",
        "a packet of the server's Maximum Packet Size is not",
        """
        hello a
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        a> 30 ~ "t" {} 'x' * 4089
        a< 30 ~ "t" {} 'x' * 4089
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.4-7",
        "more QoS 2 messages than the server's Receive Maximum are too many",
        """
        hello a
        a> 34 ~ "t" 0001 {} ; 34 ~ "t" 0002 {} ; 34 ~ "t" 0003 {} ; 34 ~ "t" 0004 {} ; 34 ~ "t" 0005 {}
        a<* 50 03 0001 10 ; 50 03 0002 10 ; 50 03 0003 10 ; 50 03 0004 10
        a! 93
    """,
        ONLY_5,
    ),
    Row(
        "§4.9",
        "what is released counts no longer",
        """
        hello a
        a> 34 ~ "t" 0001 {} ; 34 ~ "t" 0002 {} ; 34 ~ "t" 0003 {} ; 34 ~ "t" 0004 {}
        a<* 50 03 0001 10 ; 50 03 0002 10 ; 50 03 0003 10 ; 50 03 0004 10
        a> 62 02 0001 => 70 02 0001
        a> 34 ~ "t" 0005 {} => 50 03 0005 10
        a> 3c ~ "t" 0005 {} => 50 02 0005
    """,
        ONLY_5,
    ),
    Row(
        "§3.2.2.3.3",
        "a 3.1.1 client knows of no Receive Maximum",
        """
        hello a
        a> 34 ~ "t" 0001 ; 34 ~ "t" 0002 ; 34 ~ "t" 0003 ; 34 ~ "t" 0004 ; 34 ~ "t" 0005
        a<* 50 02 0001 ; 50 02 0002 ; 50 02 0003 ; 50 02 0004 ; 50 02 0005
        a.
    """,
        ONLY_3,
    ),
]

ROWS: Final = [*QOS, *MORE_QOS, *RETAINED, *PROPERTIES, *FAULTS]
