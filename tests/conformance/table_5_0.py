"""The normative statements of MQTT 5.0 (OASIS Standard, 7 March 2019, appendix B): number, whom it binds, one sentence.

The numbers are the appendix's; there is no 2.2.1-1, and the text itself prints 4.2.0-1 as 4.2-1.
"""

from typing import Final

TABLE: Final = """
1.5.4-1   both    a string is well-formed UTF-8, without surrogates
1.5.4-2   both    a string has no U+0000
1.5.4-3   both    EF BB BF is U+FEFF wherever it stands, and is never skipped or stripped
1.5.5-1   both    a variable byte integer takes as few bytes as it can
1.5.7-1   both    both strings of a pair are as 1.5.4 demands
2.1.3-1   both    reserved flags of the fixed header have the value that is listed
2.2.1-2   both    a PUBLISH of QoS 0 has no packet identifier
2.2.1-3   both    a new SUBSCRIBE, UNSUBSCRIBE or PUBLISH of a client has an identifier that is not 0 and not in use
2.2.1-4   server  a new PUBLISH of the server has an identifier that is not 0 and not in use
2.2.1-5   both    PUBACK, PUBREC, PUBREL and PUBCOMP carry the identifier of their PUBLISH
2.2.1-6   server  SUBACK and UNSUBACK carry the identifier of their request
2.2.2-1   both    no properties are said with a property length of 0
3.1.0-1   both    the first packet of a client is a CONNECT
3.1.0-2   server  a second CONNECT is a protocol error, and closes the connection
3.1.2-1   both    the protocol's name is MQTT; a server that refuses another closes the connection
3.1.2-2   server  a version that is not served closes the connection
3.1.2-3   server  the reserved flag of CONNECT is checked to be 0
3.1.2-4   both    a clean start discards the session there was and begins a new one
3.1.2-5   server  without a clean start a session that is there goes on
3.1.2-6   server  without a clean start, and without a session, a new one begins
3.1.2-7   server  a will is kept with the session
3.1.2-8   server  a will is published after the connection's end, with its delay, unless DISCONNECT 0x00 deleted it
3.1.2-9   both    with the will flag, will properties, topic and payload are there
3.1.2-10  server  a will is gone once it was published or deleted by DISCONNECT 0x00
3.1.2-11  both    without a will the will QoS is 0
3.1.2-12  both    a will QoS is 0, 1 or 2
3.1.2-13  both    without a will the will retain is 0
3.1.2-14  server  without will retain a will is not published as a retained message
3.1.2-15  server  with will retain it is
3.1.2-16  both    without its flag there is no user name
3.1.2-17  both    with its flag there is a user name
3.1.2-18  both    without its flag there is no password
3.1.2-19  both    with its flag there is a password
3.1.2-20  client  with a keep-alive and nothing else to send a client sends PINGREQ
3.1.2-21  client  a client uses the keep-alive of CONNACK where there is one
3.1.2-22  server  after one and a half keep-alives of silence the server closes the connection
3.1.2-23  both    with a session expiry interval the session is kept after the connection's end
3.1.2-24  server  no packet is larger than the client's Maximum Packet Size
3.1.2-25  server  a message that is too large is discarded, as if it had been sent
3.1.2-26  server  no topic alias is above the client's Topic Alias Maximum
3.1.2-27  server  a client with a Topic Alias Maximum of 0, or none, gets no alias
3.1.2-28  server  without Request Response Information there is no Response Information
3.1.2-29  server  without problem information only PUBLISH, CONNACK and DISCONNECT may explain themselves
3.1.2-30  client  with an authentication method a client sends AUTH and DISCONNECT only until CONNACK
3.1.3-1   both    the fields of CONNECT's payload come in their order
3.1.3-2   both    a session is known by its client identifier
3.1.3-3   both    the client identifier is there, and is the first field of the payload
3.1.3-4   both    the client identifier is a UTF-8 string
3.1.3-5   server  client identifiers of 1 to 23 letters and digits are taken
3.1.3-6   server  a client without an identifier, where that is allowed, is given one that is unique
3.1.3-7   server  and is served as if it had brought that, and is told of it in CONNACK
3.1.3-8   server  a client whose identifier is refused is closed
3.1.3-9   server  a will whose client is back before the will delay is over is not sent
3.1.3-10  server  a will keeps its user properties in their order
3.1.3-11  both    the will topic is a UTF-8 string
3.1.3-12  both    the user name is a UTF-8 string
3.1.4-1   server  a CONNECT that is not as section 3.1 says closes the connection
3.1.4-2   server  a client that fails a further check is closed
3.1.4-3   server  a client that connects again ends its former connection, with 0x8E
3.1.4-4   server  clean start is done as it says
3.1.4-5   server  a CONNECT that is taken is answered with CONNACK 0x00
3.1.4-6   server  after a refused CONNECT nothing is processed but AUTH
3.2.0-1   server  nothing but AUTH comes before CONNACK
3.2.0-2   server  there is one CONNACK in a connection
3.2.2-1   server  bits 7 to 1 of CONNACK's flags are 0
3.2.2-2   server  after a clean start Session Present is 0
3.2.2-3   server  without a clean start Session Present says whether there was a session
3.2.2-4   client  a client without a session that is told of one closes the connection
3.2.2-5   client  a client with a session that is told of none discards its own
3.2.2-6   server  with a code other than 0 Session Present is 0
3.2.2-7   server  after CONNACK with 0x80 or more the connection is closed
3.2.2-8   server  CONNACK has one of its reason codes
3.2.2-9   server  a server without QoS 1 or 2 says so with Maximum QoS
3.2.2-10  server  and still takes SUBSCRIBE with every QoS
3.2.2-11  client  a client does not publish above the server's Maximum QoS
3.2.2-12  server  a will above the server's QoS refuses the connection
3.2.2-13  server  a retained will refuses the connection where there are no retained messages
3.2.2-14  client  a client does not retain where that is not available
3.2.2-15  client  a client sends no packet above the server's Maximum Packet Size
3.2.2-16  server  an assigned client identifier is in CONNACK, and is no other session's
3.2.2-17  client  a client sends no alias above the server's Topic Alias Maximum
3.2.2-18  client  a client sends no alias where that is 0 or absent
3.2.2-19  server  no reason string makes CONNACK larger than the client takes
3.2.2-20  server  no user property makes CONNACK larger than the client takes
3.2.2-21  client  a client uses the server's keep-alive
3.2.2-22  server  without a server's keep-alive the client's is in force
3.3.1-1   both    what is sent again has DUP 1
3.3.1-2   both    DUP is 0 at QoS 0
3.3.1-3   server  DUP to a receiver does not depend on DUP from the publisher
3.3.1-4   both    not both QoS bits are set
3.3.1-5   server  a retained message replaces the one there was, and is kept
3.3.1-6   server  a retained message without payload removes the one there was
3.3.1-7   server  and is not kept itself
3.3.1-8   server  a message that is not retained leaves the retained one alone
3.3.1-9   server  Retain Handling 0: subscribing brings the retained messages
3.3.1-10  server  Retain Handling 1: a new subscription brings them, one that was there does not
3.3.1-11  server  Retain Handling 2: subscribing brings none
3.3.1-12  server  without Retain As Published RETAIN is 0 in what is forwarded
3.3.1-13  server  with Retain As Published RETAIN is as it came
3.3.2-1   both    the topic name is the first field of PUBLISH, and a UTF-8 string
3.3.2-2   both    a topic name has no wildcards
3.3.2-3   server  the topic name of what a client gets matches its subscription
3.3.2-4   server  the payload format indicator is passed on unaltered
3.3.2-5   server  a message that expired before its delivery began is deleted
3.3.2-6   server  the expiry interval that is passed on is less the time that the message waited
3.3.2-7   both    topic aliases end with their connection
3.3.2-8   both    no topic alias is 0
3.3.2-9   client  no topic alias of a client is above the server's maximum
3.3.2-10  client  a client takes every alias up to its own maximum
3.3.2-11  server  no topic alias of the server is above the client's maximum
3.3.2-12  server  the server takes every alias up to its own maximum
3.3.2-13  both    the response topic is a UTF-8 string
3.3.2-14  both    the response topic has no wildcards
3.3.2-15  server  the response topic is passed on unaltered
3.3.2-16  server  the correlation data are passed on unaltered
3.3.2-17  server  user properties are passed on, all and unaltered
3.3.2-18  server  and in their order
3.3.2-19  both    the content type is a UTF-8 string
3.3.2-20  server  the content type is passed on unaltered
3.3.4-1   both    a PUBLISH is answered as its QoS demands
3.3.4-2   server  overlapping subscriptions: the message comes with the highest QoS of them
3.3.4-3   server  and with the subscription identifiers of those that have one
3.3.4-4   server  a single copy carries all of them
3.3.4-5   server  of several copies each carries that of its own subscription
3.3.4-6   both    a client's PUBLISH has no subscription identifier
3.3.4-7   both    a client has no more unacknowledged messages than the server's Receive Maximum
3.3.4-8   client  a client delays no other packets because of it
3.3.4-9   server  the server has no more unacknowledged messages than the client's Receive Maximum
3.3.4-10  server  the server delays no other packets because of it
3.4.2-1   both    PUBACK has one of its reason codes
3.4.2-2   both    no reason string makes PUBACK larger than the receiver takes
3.4.2-3   both    no user property makes PUBACK larger than the receiver takes
3.5.2-1   both    PUBREC has one of its reason codes
3.5.2-2   both    no reason string makes PUBREC larger than the receiver takes
3.5.2-3   both    no user property makes PUBREC larger than the receiver takes
3.6.1-1   both    the flags of PUBREL are 0010; others close the connection
3.6.2-1   both    PUBREL has one of its reason codes
3.6.2-2   both    no reason string makes PUBREL larger than the receiver takes
3.6.2-3   both    no user property makes PUBREL larger than the receiver takes
3.7.2-1   both    PUBCOMP has one of its reason codes
3.7.2-2   both    no reason string makes PUBCOMP larger than the receiver takes
3.7.2-3   both    no user property makes PUBCOMP larger than the receiver takes
3.8.1-1   both    the flags of SUBSCRIBE are 0010; others close the connection
3.8.3-1   both    topic filters are UTF-8 strings
3.8.3-2   both    a SUBSCRIBE has at least one filter
3.8.3-3   server  with No Local a client does not get what it published itself
3.8.3-4   both    No Local on a shared subscription is a protocol error
3.8.3-5   server  reserved bits of the subscription options make SUBSCRIBE malformed
3.8.4-1   server  a SUBSCRIBE is answered with a SUBACK
3.8.4-2   server  of the same packet identifier
3.8.4-3   server  subscribing again to a filter replaces the subscription
3.8.4-4   server  Retain Handling 0: retained messages come again, and none is lost by the replacing
3.8.4-5   server  several filters in one packet are as several packets, with one SUBACK
3.8.4-6   server  a SUBACK has a reason code for each filter
3.8.4-7   server  which is the QoS granted, or says that it failed
3.8.4-8   server  a message comes with the lower of its QoS and the one granted
3.9.2-1   server  no reason string makes SUBACK larger than the client takes
3.9.2-2   server  no user property makes SUBACK larger than the client takes
3.9.3-1   server  the codes of SUBACK are in the order of the filters
3.9.3-2   server  SUBACK has one of its reason codes for each filter
3.10.1-1  both    the flags of UNSUBSCRIBE are 0010; others close the connection
3.10.3-1  both    topic filters to unsubscribe are UTF-8 strings
3.10.3-2  both    an UNSUBSCRIBE has at least one filter
3.10.4-1  server  filters are compared character by character, and the subscription found is deleted
3.10.4-2  server  after that no new message of it is added for delivery
3.10.4-3  server  and deliveries that were begun are completed
3.10.4-4  server  an UNSUBSCRIBE is answered with an UNSUBACK
3.10.4-5  server  of the same packet identifier, also where nothing was deleted
3.10.4-6  server  several filters in one packet are as several packets, with one UNSUBACK
3.11.2-1  server  no reason string makes UNSUBACK larger than the client takes
3.11.2-2  server  no user property makes UNSUBACK larger than the client takes
3.11.3-1  server  the codes of UNSUBACK are in the order of the filters
3.11.3-2  server  UNSUBACK has one of its reason codes for each filter
3.12.4-1  server  a PINGREQ is answered with a PINGRESP
3.14.0-1  server  no DISCONNECT comes from a server before a CONNACK below 0x80
3.14.1-1  both    reserved bits of DISCONNECT are checked to be 0
3.14.2-1  both    DISCONNECT has one of its reason codes
3.14.2-2  server  a server's DISCONNECT has no session expiry interval
3.14.2-3  both    no reason string makes DISCONNECT larger than the receiver takes
3.14.2-4  both    no user property makes DISCONNECT larger than the receiver takes
3.14.4-1  both    after DISCONNECT its sender sends nothing more
3.14.4-2  both    after DISCONNECT its sender closes the connection
3.14.4-3  server  DISCONNECT 0x00 discards the will
3.15.1-1  both    the flags of AUTH are 0; others close the connection
3.15.2-1  both    AUTH has one of its reason codes
3.15.2-2  both    no reason string makes AUTH larger than the receiver takes
3.15.2-3  both    no user property makes AUTH larger than the receiver takes
4.1.0-1   both    the session is not discarded while the connection is open
4.1.0-2   server  the session is discarded when the connection is closed and its expiry interval is over
4.2.0-1   both    a transport is used that is an ordered, lossless stream of bytes both ways
4.3.1-1   both    QoS 0: PUBLISH has QoS 0 and DUP 0
4.3.2-1   both    QoS 1, sender: each new message has an unused packet identifier
4.3.2-2   both    QoS 1, sender: PUBLISH has it, with QoS 1 and DUP 0
4.3.2-3   both    QoS 1, sender: until PUBACK the message is unacknowledged
4.3.2-4   both    QoS 1, receiver: PUBACK has the identifier of the PUBLISH whose message was taken
4.3.2-5   both    QoS 1, receiver: after PUBACK the same identifier is a new message, DUP or not
4.3.3-1   both    QoS 2, sender: each new message has an unused packet identifier
4.3.3-2   both    QoS 2, sender: PUBLISH has it, with QoS 2 and DUP 0
4.3.3-3   both    QoS 2, sender: until PUBREC the message is unacknowledged
4.3.3-4   both    QoS 2, sender: PUBREC below 0x80 is answered with PUBREL of that identifier
4.3.3-5   both    QoS 2, sender: until PUBCOMP the PUBREL is unacknowledged
4.3.3-6   both    QoS 2, sender: after PUBREL the PUBLISH is not sent again
4.3.3-7   both    QoS 2, sender: a PUBLISH that was sent does not expire
4.3.3-8   both    QoS 2, receiver: PUBREC has the identifier of the PUBLISH whose message was taken
4.3.3-9   both    QoS 2, receiver: after PUBREC of 0x80 or more the same identifier is a new message
4.3.3-10  both    QoS 2, receiver: until PUBREL the same identifier is answered with PUBREC and is the same message
4.3.3-11  both    QoS 2, receiver: PUBREL is answered with PUBCOMP of that identifier
4.3.3-12  both    QoS 2, receiver: after PUBCOMP the same identifier is a new message
4.3.3-13  both    QoS 2, receiver: the acknowledging goes on though the message expired
4.4.0-1   both    a session that goes on sends again what was not acknowledged, and nothing is sent again otherwise
4.4.0-2   both    what was answered with 0x80 or more is not sent again
4.5.0-1   server  a message that is taken is added to the sessions of the clients with matching subscriptions
4.5.0-2   client  a client acknowledges what it gets
4.6.0-1   client  a client sends again in the original order
4.6.0-2   client  a client sends PUBACK in the order of PUBLISH
4.6.0-3   client  a client sends PUBREC in the order of PUBLISH
4.6.0-4   client  a client sends PUBREL in the order of PUBREC
4.6.0-5   server  messages of one client, topic and QoS are forwarded in the order in which they came
4.6.0-6   server  every topic is such an ordered one by default
4.7.0-1   both    wildcards are in topic filters only
4.7.1-1   both    # is the last level and a whole one
4.7.1-2   both    + is a whole level
4.7.2-1   server  a filter that begins with a wildcard does not match a topic that begins with $
4.7.3-1   both    topic names and filters are not empty
4.7.3-2   both    topic names and filters have no U+0000
4.7.3-3   both    topic names and filters have 65 535 bytes at most
4.7.3-4   server  matching normalizes nothing
4.8.2-1   both    a shared filter is $share/ and a share name of one character at least
4.8.2-2   both    a share name has no /, + or #, and is followed by / and a topic filter
4.8.2-3   server  a shared message comes with the QoS that its receiver was granted
4.8.2-4   server  QoS 2 that was begun with a member is completed with it when it is back
4.8.2-5   server  and goes to nobody else when its session ends
4.8.2-6   server  a message that a member refuses with 0x80 or more goes to nobody else
4.9.0-1   both    the send quota begins above 0, and not above the Receive Maximum
4.9.0-2   both    at a quota of 0 no PUBLISH with QoS above 0 is sent
4.9.0-3   both    and all other packets are processed and answered
4.12.0-1  server  an authentication method that is not supported closes the connection
4.12.0-2  server  an AUTH that asks for more has 0x18
4.12.0-3  client  the client's answer has 0x18
4.12.0-4  server  a server that rejects the authentication closes the connection
4.12.0-5  both    every AUTH, and a successful CONNACK, names the method of CONNECT
4.12.0-6  server  without a method in CONNECT there is no AUTH from the server, and no method in CONNACK
4.12.0-7  client  without a method in CONNECT there is no AUTH from the client
4.12.1-1  client  authenticating again uses the same method
4.12.1-2  both    where authenticating again fails the connection is closed
4.13.1-1  server  a malformed packet or protocol error that has a reason code closes the connection
4.13.2-1  both    0x80 or more in CONNACK or DISCONNECT closes the connection, whether or not it is sent
6.0.0-1   both    MQTT is in binary frames of WebSocket; another data frame closes the connection
6.0.0-2   both    a frame's boundary is no packet's boundary
6.0.0-3   client  the client offers the subprotocol mqtt
6.0.0-4   server  the server answers with the subprotocol mqtt
"""
