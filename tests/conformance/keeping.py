"""Sessions and wills: what outlives a connection, for how long, and what is sent again (5.0 §3.1.2, §4.1 to §4.9)."""

from typing import Final

from mqttlite.core.limits import Limits
from tests.conformance.script import ONLY_3, ONLY_5, SINCE_3_1, Row

SESSIONS: Final = [
    Row(
        "MQTT-3.1.2-4 MQTT-3.1.4-4",
        "a clean start ends the session before",
        """
        stay a
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a> e0 00
        a!
        hello a
        a> e0 00
        a!
        back a new
        hello b
        b> 30 ~ "t" {} 'x'
        a.
    """,
    ),
    Row(
        "MQTT-3.1.2-5 MQTT-3.1.3-2 MQTT-3.2.2-3",
        "a session goes on where it was",
        """
        stay a
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a> e0 00
        a!
        back a
        hello b
        b> 30 ~ "t" {} 'x'
        a< 30 ~ "t" {} 'x'
    """,
        SINCE_3_1,
    ),
    Row("MQTT-3.1.2-6 MQTT-3.2.2-3", "without a session to go on with a new one begins", "back a new"),
    Row(
        "MQTT-3.2.2-2",
        "after a clean start there is no session present",
        """
        stay a
        a-
        hello a
    """,
    ),
    Row(
        "MQTT-3.1.2-23",
        "a session is kept for its expiry interval",
        """
        stay a
        a-
        + 99
        back a
        a-
        + 101
        back a new
    """,
        ONLY_5,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-6",
        "a session of clean session 0 is kept",
        """
        stay a
        a-
        + 10000000
        back a
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-6",
        "a session of clean session 1 ends with its connection",
        """
        hello a
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a-
        back a new
        hello b
        b> 30 ~ "t" {} 'x'
        a.
    """,
        ONLY_3,
    ),
    Row(
        "§3.1.2.11.2",
        "without an expiry interval a session ends with its connection",
        """
        hello a
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a-
        back a new
        hello b
        b> 30 ~ "t" {} 'x'
        a.
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.2.11.2",
        "expiry interval 0xFFFFFFFF is never",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 11 ffffffff } "a" => connack 0 00
        a-
        + 5000000000
        back a
    """,
        ONLY_5,
    ),
    Row(
        "§3.14.2.2.2",
        "DISCONNECT may prolong a session",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 11 00000001 } "a" => connack 0 00
        a> e0 ~ 00 { 11 00000005 }
        a!
        + 3
        back a
    """,
        ONLY_5,
    ),
    Row(
        "§3.14.2.2.2",
        "DISCONNECT may end a session",
        """
        stay a
        a> e0 ~ 00 { 11 00000000 }
        a!
        back a new
    """,
        ONLY_5,
    ),
    Row(
        "§3.14.2.2.2",
        "DISCONNECT without an interval leaves the session the one of CONNECT",
        """
        stay a
        a> e0 00
        a!
        + 99
        back a
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.2.11.2",
        "the interval of the last CONNECT counts",
        """
        stay a
        a-
        a> 10 ~ "MQTT" 05 00 0000 {} "a" => connack 1 00
        a-
        back a new
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.1.0-1",
        "a session that came back in time expires no more",
        """
        stay a
        a-
        + 90
        back a
        + 90
        a-
        + 90
        back a
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.5.0-1",
        "what is published while a client is away waits for it",
        """
        stay a
        a> 82 ~ 0001 {} "+/+" 02 => 90 ~ 0001 {} 02
        a> e0 00
        a!
        hello b
        b> 30 ~ "TopicA/B" {} '0' ; 32 ~ "Topic/C" 0001 {} '1' ; 34 ~ "TopicA/C" 0002 {} '2'
        back a
        a< 32 ~ "Topic/C" 0001 {} '1'
        a< 34 ~ "TopicA/C" 0002 {} '2'
        a.
    """,
        SINCE_3_1,
    ),
    Row(
        "MQTT-4.1.0-2",
        "what a session was is gone when it has expired",
        """
        stay a
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a-
        hello b
        b> 32 ~ "t" 0001 {} 'x' => 40 02 0001
        + 101
        back a new
        a.
        b> 32 ~ "t" 0002 {} 'x' => 40 03 0002 10
        a.
    """,
        ONLY_5,
    ),
    Row(
        "§4.1.0 3.1.1 MQTT-3.1.2-7",
        "retained messages are no part of a session",
        """
        stay b
        b> 31 ~ "t" {} 'x'
        b-
        hello b
        b> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        b< 31 ~ "t" {} 'x'
    """,
    ),
    Row(
        "§4.1.0",
        "a client that is back gets no retained messages for what it had subscribed",
        """
        stay a
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        hello b
        b> 31 ~ "t" {} 'x'
        a< 30 ~ "t" {} 'x'
        a-
        back a
        a.
    """,
    ),
    Row(
        "§4.1",
        "a session goes on in another version of the protocol",
        """
        a> 10 ~ "MQTT" 04 00 0000 "a" => 20 02 00 00
        a> 82 ~ 0001 "t" 01 => 90 ~ 0001 01
        a-
        hello b
        b> 32 ~ "t" 0001 { 26 "k" "v" } 'x' => 40 02 0001
        c> 10 ~ "MQTT" 05 00 0000 { 11 00000064 } "a" => connack 1 00
        c< 32 ~ "t" 0001 { 26 "k" "v" } 'x'
    """,
        ONLY_5,
    ),
]

AGAIN: Final = [
    Row(
        "MQTT-4.4.0-1 MQTT-3.3.1-1 MQTT-4.3.2-3 MQTT-4.3.3-3 3.1.1 MQTT-4.6.0-1",
        "what was not acknowledged is sent again, with DUP and in its order",
        """
        stay a
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        hello b
        b> 32 ~ "t" 0001 {} '1' ; 34 ~ "t" 0002 {} '2' ; 32 ~ "t" 0003 {} '3'
        a< 32 ~ "t" 0001 {} '1'
        a< 34 ~ "t" 0002 {} '2'
        a< 32 ~ "t" 0003 {} '3'
        a-
        b> 62 02 0002 ; 32 ~ "t" 0004 {} '4'
        back a
        a< 3a ~ "t" 0001 {} '1'
        a< 3c ~ "t" 0002 {} '2'
        a< 3a ~ "t" 0003 {} '3'
        a< 32 ~ "t" 0004 {} '4'
        a.
    """,
        SINCE_3_1,
    ),
    Row(
        "MQTT-4.4.0-1",
        "what was acknowledged is not sent again",
        """
        stay a
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        hello b
        b> 32 ~ "t" 0001 {} '1' ; 32 ~ "t" 0002 {} '2' ; 34 ~ "t" 0003 {} '3'
        a< 32 ~ "t" 0001 {} '1'
        a< 32 ~ "t" 0002 {} '2'
        a< 34 ~ "t" 0003 {} '3'
        a> 40 02 0002
        a> 50 02 0003 => 62 02 0003
        a> 70 02 0003
        a-
        back a
        a< 3a ~ "t" 0001 {} '1'
        a.
    """,
    ),
    Row(
        "MQTT-4.3.3-6 MQTT-4.3.3-5",
        "a PUBREL that was not answered is sent again, and not its PUBLISH",
        """
        stay a
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        hello b
        b> 34 ~ "t" 0001 {} 'x' => 50 02 0001
        a< 34 ~ "t" 0001 {} 'x'
        a> 50 02 0001 => 62 02 0001
        a-
        back a
        a< 62 02 0001
        a.
        a> 70 02 0001
        a-
        back a
        a.
    """,
    ),
    Row(
        "MQTT-4.4.0-1",
        "nothing is sent again on the connection on which it was sent",
        """
        stay a
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        hello b
        b> 32 ~ "t" 0001 {} 'x' => 40 02 0001
        a< 32 ~ "t" 0001 {} 'x'
        + 3600
        a.
    """,
    ),
    Row(
        "MQTT-4.3.3-10",
        "a QoS 2 message that a client sends again on its next connection is the same",
        """
        hello b
        b> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        stay a
        a> 34 ~ "t" 0007 {} 'x' => 50 02 0007
        a-
        back a
        a> 3c ~ "t" 0007 {} 'x' => 50 02 0007
        a> 62 02 0007 => 70 02 0007
        b< 30 ~ "t" {} 'x'
        b.
    """,
    ),
    Row(
        "MQTT-4.3.3-8",
        "a PUBREL on the next connection is of the session",
        """
        stay a
        a> 34 ~ "t" 0007 {} 'x'
        a-
        back a
        a> 62 02 0007 => 70 02 0007
    """,
    ),
    Row(
        "MQTT-3.1.2-4",
        "a clean start forgets half a QoS 2 delivery, both ways",
        """
        stay a
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        a> 34 ~ "t" 0007 {} 'x'
        a<* 34 ~ "t" 0001 {} 'x' ; 50 02 0007
        a-
        hello a
        a.
        a> 62 02 0007 => 70 03 0007 92
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.4-9 MQTT-4.9.0-1 MQTT-4.9.0-2",
        "no more than the client's Receive Maximum is sent unacknowledged",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 21 0002 } "a" => connack 0 00
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        hello b
        b> 32 ~ "t" 0001 {} '1' ; 34 ~ "t" 0002 {} '2' ; 32 ~ "t" 0003 {} '3'
        a< 32 ~ "t" 0001 {} '1'
        a< 34 ~ "t" 0002 {} '2'
        a.
        a> 50 02 0002 => 62 02 0002
        a.
        a> 70 02 0002
        a< 32 ~ "t" 0003 {} '3'
        a.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.9.0-2",
        "QoS 0 messages pass a full window",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 21 0001 } "a" => connack 0 00
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        hello b
        b> 32 ~ "t" 0001 {} '1' ; 32 ~ "t" 0002 {} '2' ; 30 ~ "t" {} '0'
        a< 32 ~ "t" 0001 {} '1'
        a< 30 ~ "t" {} '0'
        a.
        a> 40 02 0001
        a< 32 ~ "t" 0002 {} '2'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.9.0-3 MQTT-3.3.4-10",
        "a full window keeps no answer back",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 21 0001 } "a" => connack 0 00
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a> 32 ~ "t" 0001 {} '1'
        a<* 32 ~ "t" 0001 {} '1' ; 40 02 0001
        a> 32 ~ "t" 0002 {} '2' => 40 02 0002
        a> c0 00 => d0 00
        a> 82 ~ 0003 {} "u" 00 => 90 ~ 0003 {} 00
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.9.0-1",
        "the window is the one of the connection",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 21 0001 11 00000064 } "a" => connack 0 00
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        hello b
        b> 32 ~ "t" 0001 {} '1' ; 32 ~ "t" 0002 {} '2' ; 32 ~ "t" 0003 {} '3'
        a< 32 ~ "t" 0001 {} '1'
        a.
        a-
        a> 10 ~ "MQTT" 05 00 0000 { 21 0002 11 00000064 } "a" => connack 1 00
        a< 3a ~ "t" 0001 {} '1'
        a< 32 ~ "t" 0002 {} '2'
        a.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.2-25",
        "a message above the client's Maximum Packet Size is dropped as if it were sent",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 27 00000014 } "a" => connack 0 00
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        hello b c
        c> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        b> 30 ~ "t" {} 'x' * 15 ; 30 ~ "t" {} 'y' * 14
        a< 30 ~ "t" {} 'y' * 14
        b> 32 ~ "t" 0001 {} 'x' * 13 ; 32 ~ "t" 0002 {} 'y' * 12
        a< 32 ~ "t" 0001 {} 'y' * 12
        a.
        c< 30 ~ "t" {} 'x' * 15
    """,
        ONLY_5,
    ),
]

WILLS: Final = [
    Row(
        "MQTT-3.1.2-8 MQTT-3.1.2-7",
        "a will is published when the connection is lost",
        """
        a> 10 ~ "MQTT" VV 06 0000 {} "a" {} "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a-
        b< 30 ~ "w" {} 'gone'
        b.
    """,
    ),
    Row(
        "MQTT-3.1.2-8",
        "a will is published with its QoS",
        """
        a> 10 ~ "MQTT" VV 16 0000 {} "a" {} "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a-
        b< 34 ~ "w" 0001 {} 'gone'
    """,
    ),
    Row(
        "MQTT-3.1.2-14",
        "a will without will retain is not retained",
        """
        a> 10 ~ "MQTT" VV 06 0000 {} "a" {} "w" "gone" => connack 0 00
        a-
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        b.
    """,
    ),
    Row(
        "MQTT-3.1.2-15",
        "a will with will retain is retained",
        """
        a> 10 ~ "MQTT" VV 26 0000 {} "a" {} "w" "gone" => connack 0 00
        a-
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        b< 31 ~ "w" {} 'gone'
    """,
    ),
    Row(
        "§3.1.3.3",
        "a will may be empty",
        """
        a> 10 ~ "MQTT" VV 06 0000 {} "a" {} "w" "" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a-
        b< 30 ~ "w" {}
    """,
    ),
    Row(
        "MQTT-3.14.4-3",
        "after DISCONNECT there is no will",
        """
        a> 10 ~ "MQTT" VV 06 0000 {} "a" {} "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a> e0 00
        a!
        b.
    """,
    ),
    Row(
        "MQTT-3.1.2-10",
        "a will that was deleted stays so",
        """
        a> 10 ~ "MQTT" 05 06 0000 { 11 00000064 } "a" {} "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a> e0 00
        a!
        + 101
        b.
    """,
        ONLY_5,
    ),
    Row(
        "§3.14.2.1",
        "DISCONNECT 0x04 publishes the will",
        """
        a> 10 ~ "MQTT" 05 06 0000 {} "a" {} "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a> e0 01 04
        a!
        b< 30 ~ "w" {} 'gone'
    """,
        ONLY_5,
    ),
    Row(
        "§3.14.2.1",
        "DISCONNECT with a failure publishes the will",
        """
        a> 10 ~ "MQTT" 05 06 0000 {} "a" {} "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a> e0 01 80
        a!
        b< 30 ~ "w" {} 'gone'
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.2.5",
        "a protocol error publishes the will",
        """
        a> 10 ~ "MQTT" VV 06 0000 {} "a" {} "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a> 82 ~ 0001 {}
        a! 82
        b< 30 ~ "w" {} 'gone'
    """,
    ),
    Row(
        "3.1.1 MQTT-3.14.1-1",
        "a malformed DISCONNECT is none, and publishes the will",
        """
        a> 10 ~ "MQTT" VV 06 0000 {} "a" {} "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a> e1 00
        a! 81
        b< 30 ~ "w" {} 'gone'
    """,
    ),
    Row(
        "§3.1.2.5",
        "silence publishes the will",
        """
        a> 10 ~ "MQTT" VV 06 0005 {} "a" {} "w" "keepalive expiry" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        + 8
        b< 30 ~ "w" {} 'keepalive expiry'
        a! 8d
        b.
    """,
    ),
    Row(
        "§3.1.2.5",
        "a takeover publishes the will of the former connection",
        """
        a> 10 ~ "MQTT" VV 06 0000 {} "a" {} "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        c> 10 ~ "MQTT" VV 02 0000 {} "a" => connack 0 00
        a! 8e
        b< 30 ~ "w" {} 'gone'
        b.
    """,
    ),
    Row(
        "§3.1.2.5",
        "each connection has its own will",
        """
        a> 10 ~ "MQTT" 05 06 0000 { 11 00000064 } "a" {} "w" "1" => connack 0 00
        a> e0 00
        a!
        back a
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a-
        b.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.3-9",
        "a will waits for its delay",
        """
        a> 10 ~ "MQTT" 05 06 0000 { 11 00000064 } "a" { 18 00000003 } "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a-
        + 2.9
        b.
        + 0.2
        b< 30 ~ "w" {} 'gone'
        + 1000
        b.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.3-9",
        "a client that is back before the delay is over has no will published",
        """
        a> 10 ~ "MQTT" 05 06 0000 { 11 00000064 } "a" { 18 00000003 } "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a-
        + 2
        back a
        + 1000
        b.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.3-9",
        "nor one that takes over from itself, with a delay",
        """
        a> 10 ~ "MQTT" 05 06 0000 { 11 00000064 } "a" { 18 00000003 } "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        c> 10 ~ "MQTT" 05 00 0000 { 11 00000064 } "a" => connack 1 00
        a! 8e
        b.
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.3.2.2",
        "a clean start ends the session, and that publishes the will at once",
        """
        a> 10 ~ "MQTT" 05 06 0000 { 11 00000064 } "a" { 18 00000003 } "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a-
        b.
        hello a
        b< 30 ~ "w" {} 'gone'
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.3.2.2",
        "the end of the session does not wait for the delay",
        """
        a> 10 ~ "MQTT" 05 06 0000 { 11 00000002 } "a" { 18 00000005 } "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a-
        + 1.9
        b.
        + 0.2
        b< 30 ~ "w" {} 'gone'
        + 10
        b.
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.3.2.2",
        "without a session to wait in there is no delay",
        """
        a> 10 ~ "MQTT" 05 06 0000 {} "a" { 18 00000005 } "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a-
        b< 30 ~ "w" {} 'gone'
    """,
        ONLY_5,
    ),
    Row(
        "§3.14.2.2.2",
        "a session that DISCONNECT 0x04 ends does not delay the will",
        """
        a> 10 ~ "MQTT" 05 06 0000 { 11 00000064 } "a" { 18 00000005 } "w" "gone" => connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a> e0 ~ 04 { 11 00000000 }
        a!
        b< 30 ~ "w" {} 'gone'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.3-10",
        "a will is published with its properties, and without those of its delivery",
        """
        a> 10 ~ "MQTT" 05 06 0000 { 11 00000064 } "a" \
            { 18 00000001 01 01 02 0000000a 03 "c" 08 "r" 09 "d" 26 "k" "v" 26 "k" "w" } "w" "gone"
        a< connack 0 00
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a-
        + 2
        b< 30 ~ "w" { 01 01 02 0000000a 03 "c" 08 "r" 09 "d" 26 "k" "v" 26 "k" "w" } 'gone'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.3-11",
        "a will's topic is UTF-8",
        """
        a> 10 ~ "MQTT" 05 06 0000 {} "a" {} 0001 ff "gone" => connack 0 81
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.2-2",
        "a will's topic has no wildcard",
        """
        a> 10 ~ "MQTT" 05 06 0000 {} "a" {} "w/#" "gone" => connack 0 90
        a!
    """,
        ONLY_5,
    ),
    Row(
        "3.1.1 MQTT-3.3.2-2",
        "a will's topic has no wildcard",
        """
        a> 10 ~ "MQTT" 04 06 0000 "a" "w/#" "gone"
        a!
    """,
        ONLY_3,
    ),
    Row(
        "MQTT-3.1.2-8",
        "a will refused with its CONNECT is nobody's",
        """
        hello b
        b> 82 ~ 0001 {} "w" 02 => 90 ~ 0001 {} 02
        a> 10 ~ "MQTT" 05 06 0000 { 15 "m" } "a" {} "w" "gone" => connack 0 8c
        a!
        b.
    """,
        ONLY_5,
    ),
]

OPTIONS: Final = [
    Row(
        "MQTT-3.1.2-5",
        "a session keeps the options and identifiers of its subscriptions",
        """
        stay a
        a> 82 ~ 0001 { 0b 05 } "t" 0e => 90 ~ 0001 {} 02
        a> 82 ~ 0002 { 0b 06 } "u" 08 => 90 ~ 0002 {} 00
        a-
        back a
        hello b
        a> 30 ~ "t" {} 'mine'
        b> 31 ~ "t" {} 'x' ; 31 ~ "u" {} 'y'
        a< 31 ~ "t" { 0b 05 } 'x'
        a< 31 ~ "u" { 0b 06 } 'y'
        a.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.8.4-4",
        "no message is lost while a subscription is replaced",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 21 0001 } "a" => connack 0 00
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        hello b
        b> 32 ~ "t" 0001 {} '1' ; 32 ~ "t" 0002 {} '2'
        a< 32 ~ "t" 0001 {} '1'
        a> 82 ~ 0002 {} "t" 00 => 90 ~ 0002 {} 00
        a> 40 02 0001
        a< 32 ~ "t" 0002 {} '2'
    """,
        ONLY_5,
    ),
]

LIMITED: Final = [
    Row(
        "§4.1 MQTT-3.2.2-8",
        "a session too many is refused with 0x97",
        """
        hello a
        b> 10 ~ "MQTT" 05 02 0000 {} "b" => connack 0 97
        b!
    """,
        ONLY_5,
        Limits(max_sessions=1),
    ),
    Row(
        "3.1.1 MQTT-4.8.0-2 3.1.1 MQTT-3.2.2-4 3.1.1 MQTT-3.2.2-5",
        "a session too many is refused with 'server unavailable'",
        """
        hello a
        b> 10 ~ "MQTT" 04 02 0000 "b" => 20 02 00 03
        b!
    """,
        ONLY_3,
        Limits(max_sessions=1),
    ),
]

ROWS: Final = [*SESSIONS, *AGAIN, *WILLS, *OPTIONS, *LIMITED]
