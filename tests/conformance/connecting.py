"""CONNECT, CONNACK, keep-alive and DISCONNECT: how a connection begins and ends (5.0 §3.1, §3.2, §3.12, §3.14)."""

from typing import Final

from mqttlite.core.connect.capabilities import Capabilities
from mqttlite.core.limits import Limits
from mqttlite.wire.constants import V31
from tests.conformance.script import ONLY_3, ONLY_5, SINCE_3_1, Row

CONNECT: Final = [
    Row("MQTT-3.1.0-1", "the first packet is a CONNECT", "a> c0 00\na!"),
    Row(
        "MQTT-3.1.0-1",
        "a PUBLISH before CONNECT is nobody's",
        """
        hello b
        b> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        a> 30 ~ "t" {} 'x'
        a!
        b.
    """,
    ),
    Row(
        "MQTT-3.1.0-2 MQTT-3.2.0-2 MQTT-3.14.4-1 MQTT-4.13.2-1",
        "a second CONNECT is a protocol error",
        """
        hello a
        a> 10 ~ "MQTT" VV 02 0000 {} "a"
        a! 82
    """,
    ),
    Row(
        "MQTT-3.1.2-1",
        "another protocol name than MQTT closes the connection without a CONNACK",
        """
        a> 10 ~ "MQIT" VV 02 0000 {} "a"
        a!
    """,
    ),
    Row(
        "MQTT-3.1.2-2 3.1.1 MQTT-3.2.2-4 3.1.1 MQTT-3.2.2-5",
        "another protocol level is refused with 'unacceptable protocol version'",
        """
        a> 10 ~ "MQTT" 06 02 0000 {} "a" => 20 02 00 01
        a!
    """,
    ),
    Row(
        "3.1 §3.1",
        "MQIsdp at level 3 is served",
        """
        a> 10 ~ "MQIsdp" 03 02 0000 "a" => 20 02 00 00
        a> c0 00 => d0 00
    """,
        (V31,),
    ),
    Row(
        "3.1 §3.2",
        "a CONNACK of MQIsdp says nothing of the session, which goes on all the same",
        """
        a> 10 ~ "MQIsdp" 03 00 0000 "a" => 20 02 00 00
        a> 82 06 0001 "t" 01 => 90 03 0001 01
        a> e0 00
        a!
        a> 10 ~ "MQIsdp" 03 00 0000 "a" => 20 02 00 00
        a> 30 ~ "t" 'x' => 30 ~ "t" 'x'
    """,
        (V31,),
    ),
    Row(
        "3.1 §3.1",
        "MQIsdp without a client identifier is refused",
        """
        a> 10 ~ "MQIsdp" 03 02 0000 "" => 20 02 00 02
        a!
    """,
        (V31,),
    ),
    Row(
        "MQTT-3.1.2-3 3.1.1 MQTT-3.1.4-1 3.1.1 MQTT-3.2.2-6",
        "the reserved flag of CONNECT is 0",
        """
        a> 10 ~ "MQTT" VV 03 0000 {} "a"
        a!
    """,
        ONLY_3,
    ),
    Row(
        "MQTT-3.1.2-3 MQTT-3.1.4-1 MQTT-3.2.2-6 MQTT-3.2.2-7 MQTT-3.2.2-8",
        "the reserved flag of CONNECT is 0",
        """
        a> 10 ~ "MQTT" 05 03 0000 {} "a" => connack 0 81
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.2-11",
        "will QoS without a will is malformed",
        """
        a> 10 ~ "MQTT" 05 0a 0000 {} "a" => connack 0 81
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.2-12",
        "there is no will QoS 3",
        """
        a> 10 ~ "MQTT" 05 1e 0000 {} "a" {} "w" "x" => connack 0 81
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.2-13",
        "will retain without a will is malformed",
        """
        a> 10 ~ "MQTT" 05 22 0000 {} "a" => connack 0 81
        a!
    """,
        ONLY_5,
    ),
    Row(
        "3.1.1 MQTT-3.1.2-22 3.1.1 MQTT-3.1.4-1",
        "a password needs a user name before 5.0",
        """
        a> 10 ~ "MQTT" 04 42 0000 "a" "p"
        a!
    """,
        ONLY_3,
    ),
    Row(
        "§3.1.2.9",
        "a password needs no user name since 5.0",
        """
        a> 10 ~ "MQTT" 05 42 0000 {} "a" "p" => connack 0 00
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.2-17",
        "a user name and a password are taken",
        """
        a> 10 ~ "MQTT" VV c2 0000 {} "a" "u" "p" => connack 0 00
    """,
        SINCE_3_1[1:],
    ),
    Row(
        "MQTT-3.1.3-4",
        "a client identifier that is not UTF-8 is malformed",
        """
        a> 10 ~ "MQTT" 05 02 0000 {} 0001 ff => connack 0 81
        a!
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.2.11.3",
        "Receive Maximum 0 is a protocol error",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 21 0000 } "a" => connack 0 82
        a!
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.2.11.4",
        "Maximum Packet Size 0 is a protocol error",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 27 00000000 } "a" => connack 0 82
        a!
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.2.11.2",
        "a property that comes twice is a protocol error",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 11 00000001 11 00000001 } "a" => connack 0 82
        a!
    """,
        ONLY_5,
    ),
    Row(
        "§2.2.2.2",
        "a property of another packet is malformed",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 23 0001 } "a" => connack 0 81
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.12.0-1 MQTT-3.1.4-2",
        "an authentication method we do not know is refused with 0x8C",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 15 "SCRAM-SHA-1" } "a" => connack 0 8c
        a!
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.2.11.10",
        "authentication data without a method is a protocol error",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 16 "x" } "a" => connack 0 82
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.12.1-1",
        "AUTH without a method at CONNECT is a protocol error",
        """
        hello a
        a> f0 00
        a! 82
    """,
        ONLY_5,
    ),
    Row(
        "3.1.1 §2.2.1",
        "there is no AUTH before 5.0",
        """
        hello a
        a> f0 00
        a!
    """,
        ONLY_3,
    ),
    Row(
        "MQTT-3.1.4-6",
        "a refused client's further packets are not looked at",
        """
        hello b
        b> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        a> 10 ~ "MQTT" 05 02 0000 { 15 "m" } "a" ; 30 ~ "t" {} 'x' => connack 0 8c
        a!
        b.
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.4",
        "packets may follow CONNECT at once",
        """
        a>| 10 ~ "MQTT" VV 02 0000 {} "a"
        a> 82 ~ 0001 {} "t" 00
        a< connack 0 00
        a< 90 ~ 0001 {} 00
    """,
    ),
    Row(
        "§3.1.4",
        "a packet may come in pieces",
        """
        a>| 10
        a>| 0d 00
        a> 04 'MQTT' 04 02 0000 0001 'a' => connack 0 00
    """,
        ONLY_3,
    ),
    Row(
        "MQTT-3.2.0-1",
        "the first packet from the server is a CONNACK",
        """
        stay a
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        a-
        hello b
        b> 32 ~ "t" 0001 {} 'x' => 40 02 0001
        back a
        a< 32 ~ "t" 0001 {} 'x'
    """,
    ),
    Row(
        "MQTT-3.2.2-1",
        "CONNACK flags but the first are 0",
        """
        stay a -- a CONNACK with another flag would be malformed here
        a-
        back a
    """,
    ),
]

CLIENT_IDENTIFIERS: Final = [
    Row(
        "MQTT-3.1.3-8",
        "a client identifier of 1024 characters is taken, and a longer one refused with 0x85",
        """
        a> 10 ~ "MQTT" 05 02 0000 {} 0400 'x' * 1024 => connack 0 00
        b> 10 ~ "MQTT" 05 02 0000 {} 0401 'x' * 1025 => connack 0 85
        b!
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.3.1",
        "a client identifier of 1025 characters is refused with 2",
        """
        a> 10 ~ "MQTT" 04 02 0000 0400 'x' * 1024 => connack 0 00
        b> 10 ~ "MQTT" 04 02 0000 0401 'x' * 1025 => connack 0 02
        b!
    """,
        ONLY_3,
    ),
    Row(
        "MQTT-3.1.3-5 MQTT-3.1.4-5",
        "a client identifier of 23 letters and digits is taken",
        """
        a> 10 ~ "MQTT" VV 02 0000 {} "0123456789abcdefghiABCD" => connack 0 00
    """,
    ),
    Row(
        "§3.1.3.1",
        "a longer client identifier, and one of other characters, is taken too",
        """
        a> 10 ~ "MQTT" VV 02 0000 {} "a client / with + Ω # and more than twenty-three characters" => connack 0 00
    """,
    ),
    Row(
        "3.1.1 MQTT-3.1.3-6 3.1.1 MQTT-3.1.3-7",
        "without a client identifier a clean session begins",
        """
        a> 10 ~ "MQTT" 04 02 0000 "" => 20 02 00 00
        b> 10 ~ "MQTT" 04 02 0000 "" => 20 02 00 00
        a> c0 00 => d0 00
    """,
        ONLY_3,
    ),
    Row(
        "3.1.1 MQTT-3.1.3-8 3.1.1 MQTT-3.1.3-9 3.1.1 MQTT-3.2.2-4 3.1.1 MQTT-3.2.2-5",
        "without a client identifier no session can be kept",
        """
        a> 10 ~ "MQTT" 04 00 0000 "" => 20 02 00 02
        a!
    """,
        ONLY_3,
    ),
    Row(
        "MQTT-3.1.3-6 MQTT-3.1.3-7 MQTT-3.2.2-16",
        "without a client identifier one is assigned",
        """
        a> 10 ~ "MQTT" 05 02 0000 {} "" => connack 0 00 assigned_client_identifier=*
        b> 10 ~ "MQTT" 05 00 0000 {} "" => connack 0 00 assigned_client_identifier=*
        a> c0 00 => d0 00
    """,
        ONLY_5,
    ),
]

PROPERTIES_OF_CONNACK: Final = [
    Row(
        "§3.2.2.3",
        "the server says what it holds",
        """
        a> 10 ~ "MQTT" 05 02 0000 {} "a"
        a< connack 0 00 receive_maximum=4 maximum_packet_size=4096 topic_alias_maximum=3
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.12.0-6",
        "what is as the standard assumes is not said",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 11 00000064 } "a"
        a< connack 0 00 maximum_qos=None retain_available=None wildcard_subscription_available=None \
            subscription_identifier_available=None shared_subscription_available=None session_expiry_interval=None \
            server_keep_alive=None assigned_client_identifier=None server_reference=None authentication_method=None
    """,
        ONLY_5,
    ),
    Row(
        "§3.2.2.3.14 MQTT-3.2.2-22",
        "a server that wants a shorter keep-alive says which",
        """
        a> 10 ~ "MQTT" 05 02 0078 {} "a" => connack 0 00 server_keep_alive=30
        b> 10 ~ "MQTT" 05 02 0000 {} "b" => connack 0 00 server_keep_alive=30
        c> 10 ~ "MQTT" 05 02 000a {} "c" => connack 0 00 server_keep_alive=None
    """,
        ONLY_5,
        Limits(server_keep_alive_s=30),
    ),
    Row(
        "MQTT-3.2.2-21 MQTT-3.1.2-21",
        "the server's keep-alive is the one in force",
        """
        a> 10 ~ "MQTT" 05 02 0078 {} "a" => connack 0 00 server_keep_alive=30
        + 44
        a.
        + 2
        a! 8d
    """,
        ONLY_5,
        Limits(server_keep_alive_s=30),
    ),
    Row(
        "3.1.1 §3.1.2.10",
        "the server's keep-alive holds for clients that cannot be told of it",
        """
        a> 10 ~ "MQTT" 04 02 0078 "a" => connack 0 00
        b> 10 ~ "MQTT" 04 02 0000 "b" => connack 0 00
        + 44
        a.
        b.
        + 2
        a!
        b!
    """,
        ONLY_3,
        Limits(server_keep_alive_s=30),
    ),
    Row(
        "§3.2.2.3.2",
        "a server that keeps sessions for less says for how long",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 11 ffffffff } "a" => connack 0 00 session_expiry_interval=60
    """,
        ONLY_5,
        Limits(max_session_expiry_s=60),
    ),
    Row(
        "§3.1.2.11.7",
        "without problem information a DISCONNECT has no reason string",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 17 00 } "a" => connack 0 00
        a> 82 ~ 0001 {} => e0 01 82
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.14.2-3 MQTT-3.14.2-4",
        "a reason string that makes a DISCONNECT too large is left out",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 27 0000001e } "a" => connack 0 00
        a> 82 ~ 0001 {} => e0 01 82
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.2.2-19 MQTT-3.2.2-20",
        "a reason string that makes a CONNACK too large is left out",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 27 00000010 15 "m" } "a" => 20 03 00 8c 00
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.2-24",
        "a client that takes no CONNACK of ours is refused",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 27 00000008 } "a" => 20 03 00 95 00
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.2-24",
        "not even the refusal is larger than the client takes",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 27 00000004 } "a"
        a!
    """,
        ONLY_5,
    ),
]

LESS: Final = [
    Row(
        "MQTT-3.2.2-9",
        "a server that does not take QoS 2 says so, and closes a client that sends it",
        """
        a> 10 ~ "MQTT" 05 02 0000 {} "a" => connack 0 00 maximum_qos=1
        a> 32 ~ "t" 0001 {} 'x' => 40 03 0001 10
        a> 34 ~ "t" 0002 {} 'x'
        a! 9b
    """,
        ONLY_5,
        capabilities=Capabilities(maximum_qos=1),
    ),
    Row(
        "MQTT-3.2.2-10",
        "and takes a SUBSCRIBE with any QoS",
        """
        hello a
        a> 82 ~ 0001 {} "t" 00 "u" 01 "v" 02 => 90 ~ 0001 {} 00 01 02
    """,
        ONLY_5,
        capabilities=Capabilities(maximum_qos=1),
    ),
    Row(
        "MQTT-3.2.2-12",
        "and refuses a will with that QoS",
        """
        a> 10 ~ "MQTT" 05 16 0000 {} "a" {} "w" "x" => connack 0 9b
        a!
    """,
        ONLY_5,
        capabilities=Capabilities(maximum_qos=1),
    ),
    Row(
        "MQTT-3.2.2-13",
        "a server without retained messages says so, and refuses a will that is to be one",
        """
        hello b
        a> 10 ~ "MQTT" 05 26 0000 {} "a" {} "w" "x" => connack 0 9a
        a!
        a> 10 ~ "MQTT" 05 02 0000 {} "a" => connack 0 00 retain_available=0
        a> 31 ~ "t" {} 'x'
        a! 9a
    """,
        ONLY_5,
        capabilities=Capabilities(retain_available=False),
    ),
    Row(
        "§3.9.3",
        "wildcards, subscription identifiers and shared subscriptions that are not offered are refused by name",
        """
        a> 10 ~ "MQTT" 05 02 0000 {} "a"
        a< connack 0 00 wildcard_subscription_available=0 subscription_identifier_available=0 \
            shared_subscription_available=0
        a> 82 ~ 0001 {} "t/+" 00 "$share/g/t" 00 "t" 00 => 90 ~ 0001 {} a2 9e 00
        a> 82 ~ 0002 { 0b 01 } "t" 00 => 90 ~ 0002 {} a1
    """,
        ONLY_5,
        capabilities=Capabilities(
            wildcards_available=False, subscription_identifiers_available=False, shared_subscriptions_available=False
        ),
    ),
]

KEEP_ALIVE: Final = [
    Row(
        "MQTT-3.1.2-22 MQTT-3.2.2-22",
        "after one and a half keep-alives of silence the connection ends",
        """
        a> 10 ~ "MQTT" VV 02 000a {} "a" => connack 0 00
        + 14.9
        a.
        + 0.2
        a! 8d
    """,
    ),
    Row(
        "MQTT-3.2.2-22",
        "any packet keeps a connection alive",
        """
        a> 10 ~ "MQTT" VV 02 000a {} "a" => connack 0 00
        + 14
        a> c0 00 => d0 00
        + 14
        a> 30 ~ "t" {} 'x'
        + 14
        a.
        + 2
        a! 8d
    """,
    ),
    Row(
        "MQTT-3.1.2-22",
        "the pieces of a packet that never ends keep nothing alive",
        """
        a> 10 ~ "MQTT" VV 02 000a {} "a" => connack 0 00
        + 10
        a>| 30 10
        + 4
        a>| 00
        + 2
        a! 8d
    """,
    ),
    Row(
        "§3.1.2.10",
        "keep-alive 0 is none",
        """
        a> 10 ~ "MQTT" VV 02 0000 {} "a" => connack 0 00
        + 100000
        a.
    """,
    ),
    Row(
        "MQTT-3.12.4-1",
        "a PINGREQ is answered",
        """
        hello a
        a> c0 00 => d0 00
    """,
    ),
    Row(
        "§3.1.4",
        "a client that sends no CONNECT is not waited for",
        """
        a>| 10
        + 11
        a!
    """,
    ),
]

DISCONNECTING: Final = [
    Row(
        "MQTT-3.14.4-2 MQTT-3.14.4-1",
        "after DISCONNECT the connection is closed",
        """
        hello a
        a> e0 00
        a!
    """,
        SINCE_3_1,
    ),
    Row(
        "MQTT-3.14.0-1",
        "no DISCONNECT comes before CONNACK",
        """
        a> 82 ~ 0001 {} "t" 00
        a!
    """,
    ),
    Row(
        "MQTT-3.14.1-1",
        "the flags of DISCONNECT are reserved",
        """
        hello a
        a> e1 00
        a! 81
    """,
    ),
    Row(
        "§3.14.2.2.2",
        "a session may not be given an expiry at DISCONNECT that had none",
        """
        hello a
        a> e0 ~ 00 { 11 00000001 }
        a! 82
    """,
        ONLY_5,
    ),
    Row(
        "§3.14.2.1",
        "a DISCONNECT may say what went wrong at the client",
        """
        hello a
        a> e0 ~ 81 { 1f "no" 26 "k" "v" }
        a!
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.14.2-1",
        "a reason code that is none is a protocol error",
        """
        hello a
        a> e0 01 05
        a! 82
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.1.4-3",
        "the same client identifier takes over, and the former connection hears 0x8E",
        """
        hello a
        b> 10 ~ "MQTT" VV 02 0000 {} "a" => connack 0 00
        a! 8e
        b> c0 00 => d0 00
    """,
    ),
    Row(
        "MQTT-3.1.4-3",
        "a takeover goes on with the session",
        """
        stay a
        a> 82 ~ 0001 {} "t" 01 => 90 ~ 0001 {} 01
        hello b
        b> 32 ~ "t" 0001 {} 'x' => 40 02 0001
        a< 32 ~ "t" 0001 {} 'x'
        c> 10 ~ "MQTT" 05 00 0000 { 11 00000064 } "a" => connack 1 00
        a! 8e
        c< 3a ~ "t" 0001 {} 'x'
    """,
        ONLY_5,
    ),
    Row(
        "§3.1.2.11.2",
        "a session without expiry does not survive a takeover",
        """
        hello a
        b> 10 ~ "MQTT" 05 00 0000 {} "a" => connack 0 00
        a! 8e
    """,
        ONLY_5,
    ),
]

ROWS: Final = [
    *CONNECT,
    *CLIENT_IDENTIFIERS,
    *PROPERTIES_OF_CONNACK,
    *LESS,
    *KEEP_ALIVE,
    *DISCONNECTING,
]
