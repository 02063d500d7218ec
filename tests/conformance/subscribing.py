"""SUBSCRIBE, UNSUBSCRIBE and what a topic filter matches (5.0 §3.8 to §3.11, §4.7, §4.8)."""

from typing import Final

from mqttlite.core.limits import Limits
from tests.conformance.script import ONLY_3, ONLY_5, SINCE_3_1, Row


def _matches(topic_filter: str, *topics: str) -> str:
    """A script in which a subscription gets what is published to those topics."""
    lines = ["hello a b", f'a> 82 ~ 0001 {{}} "{topic_filter}" 00 => 90 ~ 0001 {{}} 00']
    for topic in topics:
        lines += [f"b> 30 ~ \"{topic}\" {{}} 'x'", f"a< 30 ~ \"{topic}\" {{}} 'x'"]
    return "\n".join([*lines, "a."])


def _does_not_match(topic_filter: str, *topics: str) -> str:
    """A script in which a subscription gets nothing of what is published to those topics, nor of what is retained."""
    lines = ["hello a b c", f'a> 82 ~ 0001 {{}} "{topic_filter}" 00 => 90 ~ 0001 {{}} 00']
    lines += [f"b> 31 ~ \"{topic}\" {{}} 'x'" for topic in topics]
    return "\n".join([*lines, "a.", f'c> 82 ~ 0001 {{}} "{topic_filter}" 00 => 90 ~ 0001 {{}} 00', "c."])


SUBSCRIBE: Final = [
    Row(
        "MQTT-3.8.4-1 MQTT-3.8.4-2 MQTT-2.2.1-6",
        "a SUBSCRIBE is answered with a SUBACK of its packet identifier",
        """
        hello a
        a> 82 ~ ffff {} "t" 02 => 90 ~ ffff {} 02
    """,
        SINCE_3_1,
    ),
    Row(
        "MQTT-3.8.4-6 MQTT-3.8.4-7 MQTT-3.9.3-1",
        "there is a code for each filter, in their order",
        """
        hello a
        a> 82 ~ 0001 {} "t" 02 "u" 00 "v" 01 => 90 ~ 0001 {} 02 00 01
    """,
    ),
    Row(
        "MQTT-3.8.4-5",
        "many filters in one packet are as many packets",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 00 "u" 00 => 90 ~ 0001 {} 00 00
        b> 30 ~ "t" {} 'x' ; 30 ~ "u" {} 'y'
        a< 30 ~ "t" {} 'x'
        a< 30 ~ "u" {} 'y'
    """,
    ),
    Row(
        "MQTT-3.8.4-3",
        "subscribing again to a filter replaces the subscription",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        a> 82 ~ 0002 {} "t" 02 => 90 ~ 0002 {} 02
        b> 34 ~ "t" 0001 {} 'x' => 50 02 0001
        a< 34 ~ "t" 0001 {} 'x'
        a.
    """,
    ),
    Row(
        "MQTT-3.3.4-2",
        "of overlapping subscriptions one copy comes, with the highest QoS",
        """
        hello a b
        a> 82 ~ 0001 {} "TopicA/#" 02 "TopicA/+" 01 "#" 00 => 90 ~ 0001 {} 02 01 00
        b> 34 ~ "TopicA/C" 0001 {} 'x' => 50 02 0001
        a< 34 ~ "TopicA/C" 0001 {} 'x'
        a.
    """,
    ),
    Row(
        "MQTT-3.3.4-3",
        "a subscription identifier comes with what its subscription matches",
        """
        hello a b
        a> 82 ~ 0001 { 0b c8f01b } "t" 02 => 90 ~ 0001 {} 02
        b> 30 ~ "t" {} 'x' ; 32 ~ "t" 0001 {} 'y' => 40 02 0001
        a< 30 ~ "t" { 0b c8f01b } 'x'
        a< 32 ~ "t" 0001 { 0b c8f01b } 'y'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.3.4-4",
        "a copy for several subscriptions carries all their identifiers",
        """
        hello a b
        a> 82 ~ 0001 { 0b 02 } "t" 00 => 90 ~ 0001 {} 00
        a> 82 ~ 0002 { 0b 03 } "t/#" 00 => 90 ~ 0002 {} 00
        a> 82 ~ 0003 {} "#" 00 => 90 ~ 0003 {} 00
        b> 30 ~ "t" {} 'x'
        a< 30 ~ "t" { 0b 02 0b 03 } 'x'
        a.
    """,
        ONLY_5,
    ),
    Row(
        "§3.8.2.1.2",
        "subscribing again replaces the subscription identifier, or takes it away",
        """
        hello a b
        a> 82 ~ 0001 { 0b 02 } "t" 00 => 90 ~ 0001 {} 00
        a> 82 ~ 0002 { 0b 03 } "t" 00 => 90 ~ 0002 {} 00
        b> 30 ~ "t" {} 'x'
        a< 30 ~ "t" { 0b 03 } 'x'
        a> 82 ~ 0003 {} "t" 00 => 90 ~ 0003 {} 00
        b> 30 ~ "t" {} 'x'
        a< 30 ~ "t" {} 'x'
    """,
        ONLY_5,
    ),
    Row(
        "§3.3.2.3.8",
        "a retained message carries the identifier of the subscription that found it",
        """
        hello a b
        b> 31 ~ "t" {} 'x'
        a> 82 ~ 0001 {} "#" 20 => 90 ~ 0001 {} 00
        a> 82 ~ 0002 { 0b 07 } "t" 00 => 90 ~ 0002 {} 00
        a< 31 ~ "t" { 0b 07 } 'x'
    """,
        ONLY_5,
    ),
    Row(
        "§3.3.2.3.8",
        "identifiers stand beside the message's own properties",
        """
        hello a b
        a> 82 ~ 0001 { 0b 01 } "t" 01 => 90 ~ 0001 {} 01
        b> 32 ~ "t" 0001 { 01 01 02 00000009 03 "c" 08 "r" 09 "d" 26 "k" "v" } 'x' => 40 02 0001
        a< 32 ~ "t" 0001 { 01 01 02 00000009 03 "c" 08 "r" 09 "d" 0b 01 26 "k" "v" } 'x'
    """,
        ONLY_5,
    ),
    Row(
        "§3.8.2.1.2",
        "subscription identifier 0 is a protocol error",
        """
        hello a
        a> 82 ~ 0001 { 0b 00 } "t" 00
        a! 82
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.8.3-3",
        "with No Local a client does not get what it published itself",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 06 => 90 ~ 0001 {} 02
        b> 82 ~ 0001 {} "t" 06 => 90 ~ 0001 {} 02
        a> 30 ~ "t" {} 'x' ; 32 ~ "t" 0001 {} 'y'
        b< 30 ~ "t" {} 'x'
        b< 32 ~ "t" 0001 {} 'y'
        a< 40 02 0001
        a.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.8.3-3",
        "another subscription without No Local still brings it",
        """
        hello a
        a> 82 ~ 0001 { 0b 01 } "t" 06 => 90 ~ 0001 {} 02
        a> 82 ~ 0002 { 0b 02 } "#" 01 => 90 ~ 0002 {} 01
        a> 30 ~ "t" {} 'x'
        a< 30 ~ "t" { 0b 02 } 'x'
        a> 34 ~ "t" 0001 {} 'y'
        a<* 32 ~ "t" 0001 { 0b 02 } 'y' ; 50 02 0001
        a.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.8.3-3",
        "with No Local a client does not get its own will",
        """
        a> 10 ~ "MQTT" 05 0e 0000 { 11 00000064 } "a" {} "w" "x" => connack 0 00
        a> 82 ~ 0001 {} "w" 05 => 90 ~ 0001 {} 01
        hello b
        b> 82 ~ 0001 {} "w" 05 => 90 ~ 0001 {} 01
        a-
        b< 32 ~ "w" 0001 {} 'x'
        back a
        a.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.8.3-4",
        "a shared subscription with No Local is a protocol error",
        """
        hello a
        a> 82 ~ 0001 {} "$share/g/t" 04
        a! 82
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.9.3-2 MQTT-3.9.2-1 MQTT-3.9.2-2",
        "a filter too many is refused with 0x97",
        """
        hello a
        a> 82 ~ 0001 {} "t" 00 "u" 00 "t" 01 => 90 ~ 0001 {} 00 97 01
    """,
        ONLY_5,
        Limits(max_subscriptions=1),
    ),
    Row(
        "3.1.1 MQTT-3.9.3-2",
        "a filter too many is refused with 0x80",
        """
        hello a
        a> 82 ~ 0001 {} "t" 00 "u" 00 "t" 01 => 90 ~ 0001 {} 00 80 01
    """,
        ONLY_3,
        Limits(max_subscriptions=1),
    ),
    Row(
        "MQTT-3.8.1-1",
        "the flags of SUBSCRIBE are 0010",
        """
        hello a
        a> 80 ~ 0001 {} "t" 00
        a! 81
    """,
    ),
    Row(
        "3.1.1 MQTT-3.8.3-3",
        "a SUBSCRIBE has a filter",
        """
        hello a
        a> 82 ~ 0001
        a!
    """,
        ONLY_3,
    ),
    Row(
        "MQTT-4.7.3-1",
        "a filter is not empty",
        """
        hello a
        a> 82 ~ 0001 {} "t" 00 "" 00
        a! 8f
    """,
    ),
    Row(
        "MQTT-4.7.1-1",
        "# is a whole level",
        """
        hello a
        a> 82 ~ 0001 {} "sport/tennis#" 00
        a! 8f
    """,
    ),
    Row(
        "MQTT-4.7.1-1",
        "# is the last level",
        """
        hello a
        a> 82 ~ 0001 {} "sport/#/ranking" 00
        a! 8f
    """,
    ),
    Row(
        "MQTT-4.7.1-2",
        "+ is a whole level",
        """
        hello a
        a> 82 ~ 0001 {} "sport+" 00
        a! 8f
    """,
    ),
    Row(
        "MQTT-3.1.2-24",
        "a SUBACK is not larger than the client takes",
        """
        a> 10 ~ "MQTT" 05 02 0000 { 27 00000014 } "a" => connack 0 00
        a> 82 ~ 0001 {} "1" 00 "2" 00 "3" 00 "4" 00 "5" 00 "6" 00 "7" 00 "8" 00 "9" 00 "a" 00 "b" 00 "c" 00 "d" 00 \
            "e" 00
        a< 90 ~ 0001 {} 0000000000000000000000000000
        a> 82 ~ 0002 {} "1" 00 "2" 00 "3" 00 "4" 00 "5" 00 "6" 00 "7" 00 "8" 00 "9" 00 "a" 00 "b" 00 "c" 00 "d" 00 \
            "e" 00 "f" 00 "g" 00
        a! 95
    """,
        ONLY_5,
    ),
]

UNSUBSCRIBE: Final = [
    Row(
        "MQTT-3.10.4-4 MQTT-3.10.4-5 MQTT-2.2.1-6",
        "an UNSUBSCRIBE is answered with an UNSUBACK, even if nothing was subscribed",
        """
        hello a
        a> a2 ~ 1234 {} "t" => b0 02 1234
    """,
        (3, 4),
    ),
    Row(
        "MQTT-3.11.3-1 MQTT-3.10.4-4 MQTT-3.10.4-5 MQTT-3.10.4-6 MQTT-3.11.3-2 MQTT-3.11.2-1 MQTT-3.11.2-2",
        "an UNSUBACK has a code for each filter",
        """
        hello a
        a> 82 ~ 0001 {} "t" 00 "u" 00 => 90 ~ 0001 {} 00 00
        a> a2 ~ 1234 {} "u" "v" "t" "t" => b0 ~ 1234 {} 00 11 00 11
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.10.4-2",
        "after UNSUBSCRIBE nothing more is delivered for that filter",
        """
        hello a b
        a> 82 ~ 0001 {} "TopicA" 02 "TopicA/B" 02 "Topic/C" 02 => 90 ~ 0001 {} 02 02 02
        a> a2 ~ 0002 {} "TopicA" => b0 ~ 0002 {} 00
        b> 32 ~ "TopicA" 0001 {} '0' ; 32 ~ "TopicA/B" 0002 {} '1' ; 32 ~ "Topic/C" 0003 {} '2'
        a< 32 ~ "TopicA/B" 0001 {} '1'
        a< 32 ~ "Topic/C" 0002 {} '2'
        a.
    """,
        ONLY_5,
    ),
    Row(
        "3.1.1 MQTT-3.10.4-2",
        "after UNSUBSCRIBE nothing more is delivered for that filter",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 00 => 90 ~ 0001 {} 00
        a> a2 ~ 0002 {} "t" => b0 02 0002
        b> 30 ~ "t" {} 'x'
        a.
    """,
        ONLY_3,
    ),
    Row(
        "MQTT-3.10.4-1",
        "a filter is compared character by character, and not by what it matches",
        """
        hello a b
        a> 82 ~ 0001 {} "t/+" 00 => 90 ~ 0001 {} 00
        a> a2 ~ 0002 {} "t/u" "#" "t/#" => b0 ~ 0002 {} 11 11 11
        b> 30 ~ "t/u" {} 'x'
        a< 30 ~ "t/u" {} 'x'
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.10.4-3",
        "a delivery that was begun is completed after UNSUBSCRIBE",
        """
        hello a b
        a> 82 ~ 0001 {} "t" 02 => 90 ~ 0001 {} 02
        b> 34 ~ "t" 0001 {} 'x' => 50 02 0001
        a< 34 ~ "t" 0001 {} 'x'
        a> a2 ~ 0002 {} "t" => b0 ~ 0002 {} 00
        a> 50 02 0001 => 62 02 0001
        a> 70 02 0001
        a.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-3.10.1-1",
        "the flags of UNSUBSCRIBE are 0010",
        """
        hello a
        a> a0 ~ 0001 {} "t"
        a! 81
    """,
    ),
    Row(
        "MQTT-3.10.3-2",
        "an UNSUBSCRIBE has a filter",
        """
        hello a
        a> a2 ~ 0001 {}
        a! 82
    """,
    ),
    Row(
        "MQTT-4.7.1-1",
        "a filter that is none cannot be unsubscribed either",
        """
        hello a
        a> a2 ~ 0001 {} "a/#/b"
        a! 8f
    """,
    ),
    Row(
        "§3.11.3",
        "a shared subscription that never was is none",
        """
        hello a
        a> a2 ~ 0001 {} "$share/g/t" => b0 ~ 0001 {} 11
    """,
        ONLY_5,
    ),
]

FILTERS: Final = [
    Row(
        "MQTT-3.3.2-3",
        "# matches its parent and all levels below",
        _matches(
            "sport/tennis/player1/#",
            "sport/tennis/player1",
            "sport/tennis/player1/ranking",
            "sport/tennis/player1/score/wimbledon",
        ),
    ),
    Row("§4.7.1.2", "# matches everything", _matches("#", "a", "/", "a/b/c", " ", "a//b")),
    Row("§4.7.1.3", "+ matches one level", _matches("sport/tennis/+", "sport/tennis/player1", "sport/tennis/")),
    Row(
        "§4.7.1.3",
        "+ matches no more than one level, and no less",
        _does_not_match("sport/+", "sport", "sport/a/b", "sports/a"),
    ),
    Row("§4.7.1.3", "+ may stand at any level", _matches("+/tennis/#", "sport/tennis", "/tennis/a/b")),
    Row("§4.7.1.3", "+/+ and /+ match /finance", _matches("+/+", "/finance")),
    Row("§4.7.1.3", "/+ matches /finance", _matches("/+", "/finance")),
    Row("§4.7.1.3", "+ does not match /finance", _does_not_match("+", "/finance", "a/b")),
    Row(
        "MQTT-4.7.2-1",
        "# does not match what begins with $",
        _does_not_match("#", "$x", "$x/a", "$a"),
    ),
    Row(
        "MQTT-4.7.2-1",
        "+ does not match what begins with $",
        _does_not_match("+/monitor/Clients", "$x/monitor/Clients"),
    ),
    Row("MQTT-4.7.2-1", "+/+ does not match what begins with $", _does_not_match("+/+", "$TopicA/B")),
    Row("§4.7.2", "$a/# matches what begins with $a/", _matches("$a/#", "$a/monitor/Clients")),
    Row("§4.7.2", "$a/monitor/+ matches $a/monitor/Clients", _matches("$a/monitor/+", "$a/monitor/Clients")),
    Row("§4.7.2", "a $ that is not the first character is one as any other", _matches("+/#", "a$/b", "a/$b")),
    Row("§4.7.3", "topic names are case sensitive", _does_not_match("ACCOUNTS", "Accounts", "accounts")),
    Row("§4.7.3", "topic names may have spaces", _matches("Accounts payable", "Accounts payable")),
    Row("§4.7.3", "a leading / makes another topic", _does_not_match("/finance", "finance", "finance/", "//finance")),
    Row("§4.7.3", "/ alone is a topic", _matches("/", "/")),
    Row("§4.7.3", "a trailing / makes another topic", _does_not_match("finance/", "finance", "finance//")),
    Row(
        "MQTT-4.7.3-4",
        "topics are compared character by character, not normalized",
        """
        hello a b
        a> 82 ~ 0001 {} 0002 c385 00 => 90 ~ 0001 {} 00
        b> 30 ~ 0003 41cc8a {} 'x' ; 30 ~ 0003 e284ab {} 'x' ; 30 ~ 0002 c385 {} 'y'
        a< 30 ~ 0002 c385 {} 'y'
        a.
    """,
    ),
    Row(
        "§4.7",
        "a subscription made after a topic was used is served, and one that ends is not",
        """
        hello a b
        b> 30 ~ "t/u" {} '0'
        a> 82 ~ 0001 {} "t/+" 00 => 90 ~ 0001 {} 00
        b> 30 ~ "t/u" {} '1'
        a< 30 ~ "t/u" {} '1'
        a> 82 ~ 0002 {} "t/u" 01 => 90 ~ 0002 {} 01
        b> 32 ~ "t/u" 0001 {} '2'
        a< 32 ~ "t/u" 0001 {} '2'
        a> a2 ~ 0003 {} "t/u" "t/+" => b0 ~ 0003 {} 00 00
        b> 30 ~ "t/u" {} '3'
        a.
    """,
        ONLY_5,
    ),
]

SHARED: Final = [
    Row(
        "§4.8.2",
        "of a group each message reaches one",
        """
        hello a b c
        a> 82 ~ 0001 {} "$share/g/t/+" 00 => 90 ~ 0001 {} 00
        b> 82 ~ 0001 {} "$share/g/t/+" 00 => 90 ~ 0001 {} 00
        c> 30 ~ "t/u" {} '1' ; 32 ~ "t/u" 0001 {} '2'
        a< 30 ~ "t/u" {} '1'
        b< 30 ~ "t/u" {} '2'
        a.
        b.
        c< 40 02 0001
    """,
    ),
    Row(
        "§4.8.2",
        "each group, and each subscription that is not shared, gets its own copy",
        """
        hello a b
        a> 82 ~ 0001 {} "$share/g/t" 00 "$share/h/t" 00 "t" 00 => 90 ~ 0001 {} 00 00 00
        b> 30 ~ "t" {} 'x'
        a< 30 ~ "t" {} 'x'
        a< 30 ~ "t" {} 'x'
        a< 30 ~ "t" {} 'x'
        a.
    """,
    ),
    Row(
        "§3.3.1.3",
        "a shared subscription is given no retained messages",
        """
        hello a b
        b> 31 ~ "t" {} 'x'
        a> 82 ~ 0001 {} "$share/g/t" 00 => 90 ~ 0001 {} 00
        a.
    """,
    ),
    Row(
        "§4.8.2",
        "a client that unsubscribes leaves the group",
        """
        hello a b c
        a> 82 ~ 0001 {} "$share/g/t" 00 => 90 ~ 0001 {} 00
        b> 82 ~ 0001 {} "$share/g/t" 00 => 90 ~ 0001 {} 00
        a> a2 ~ 0002 {} "t" "$share/g/t" => b0 ~ 0002 {} 11 00
        c> 30 ~ "t" {} '1' ; 30 ~ "t" {} '2'
        b< 30 ~ "t" {} '1'
        b< 30 ~ "t" {} '2'
        a.
    """,
        ONLY_5,
    ),
    Row(
        "§4.8.2",
        "a member that disconnects leaves its messages to the others",
        """
        hello a b c
        a> 82 ~ 0001 {} "$share/g/t" 01 => 90 ~ 0001 {} 01
        b> 82 ~ 0001 {} "$share/g/t" 01 => 90 ~ 0001 {} 01
        a> e0 00
        a!
        c> 32 ~ "t" 0001 {} '1' => 40 02 0001
        c> 32 ~ "t" 0002 {} '2' => 40 02 0002
        b< 32 ~ "t" 0001 {} '1'
        b< 32 ~ "t" 0002 {} '2'
    """,
    ),
    Row(
        "MQTT-4.8.2-3",
        "each member gets the QoS that it was granted",
        """
        hello a b c
        a> 82 ~ 0001 {} "$share/g/t" 00 => 90 ~ 0001 {} 00
        b> 82 ~ 0001 {} "$share/g/t" 01 => 90 ~ 0001 {} 01
        c> 34 ~ "t" 0001 {} '1' => 50 02 0001
        c> 34 ~ "t" 0002 {} '2' => 50 02 0002
        a< 30 ~ "t" {} '1'
        b< 32 ~ "t" 0001 {} '2'
    """,
    ),
    Row(
        "MQTT-4.8.2-4",
        "a QoS 2 message that a member has is completed with that member",
        """
        stay a
        hello b c
        a> 82 ~ 0001 {} "$share/g/t" 02 => 90 ~ 0001 {} 02
        b> 82 ~ 0001 {} "$share/g/t" 02 => 90 ~ 0001 {} 02
        c> 34 ~ "t" 0001 {} 'x' => 50 02 0001
        a< 34 ~ "t" 0001 {} 'x'
        a-
        b.
        back a
        a< 3c ~ "t" 0001 {} 'x'
        b.
    """,
    ),
    Row(
        "MQTT-4.8.2-5",
        "a QoS 2 message goes to nobody else when the session ends",
        """
        stay a
        hello b c
        a> 82 ~ 0001 {} "$share/g/t" 02 => 90 ~ 0001 {} 02
        b> 82 ~ 0001 {} "$share/g/t" 02 => 90 ~ 0001 {} 02
        c> 34 ~ "t" 0001 {} 'x' => 50 02 0001
        a< 34 ~ "t" 0001 {} 'x'
        a-
        hello a
        a.
        b.
    """,
    ),
    Row(
        "MQTT-4.8.2-6",
        "a message that a member refuses goes to nobody else",
        """
        hello a b c
        a> 82 ~ 0001 {} "$share/g/t" 02 => 90 ~ 0001 {} 02
        b> 82 ~ 0001 {} "$share/g/t" 02 => 90 ~ 0001 {} 02
        c> 32 ~ "t" 0001 {} 'x' => 40 02 0001
        a< 32 ~ "t" 0001 {} 'x'
        a> 40 03 0001 80
        b.
        c> 34 ~ "t" 0002 {} 'x' => 50 02 0002
        b< 34 ~ "t" 0001 {} 'x'
        b> 50 03 0001 80
        a.
        b.
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.8.2-1",
        "a share name is not empty",
        """
        hello a
        a> 82 ~ 0001 {} "$share//t" 00
        a! 8f
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.8.2-2",
        "a share name has no wildcard",
        """
        hello a
        a> 82 ~ 0001 {} "t" 00 "$share/+/t" 00
        a! 8f
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.8.2-2",
        "a share name is followed by a filter",
        """
        hello a
        a> 82 ~ 0001 {} "$share/g" 00
        a! 8f
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.8.2-2",
        "the filter behind a share name is not empty",
        """
        hello a
        a> 82 ~ 0001 {} "$share/g/" 00
        a! 8f
    """,
        ONLY_5,
    ),
    Row(
        "MQTT-4.7.3-1",
        "of a packet with a filter that is none nothing is done",
        """
        stay a
        a> 82 ~ 0001 {} "t" 00 "$share//t" 00
        a! 8f
        back a
        hello b
        b> 30 ~ "t" {} 'x'
        a.
    """,
        ONLY_5,
    ),
    Row(
        "§4.8.2",
        "what begins with $share and not with $share/ is no shared subscription",
        """
        hello a b
        a> 82 ~ 0001 {} "$share" 00 "$shared/t" 00 => 90 ~ 0001 {} 00 00
        b> 30 ~ "$share" {} 'x' ; 30 ~ "$shared/t" {} 'x'
        a< 30 ~ "$share" {} 'x'
        a< 30 ~ "$shared/t" {} 'x'
    """,
    ),
]

ROWS: Final = [*SUBSCRIBE, *UNSUBSCRIBE, *FILTERS, *SHARED]
