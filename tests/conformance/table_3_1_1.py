"""The normative statements of MQTT 3.1.1 (OASIS Standard, 29 October 2014, appendix B): number, whom it binds, the
statements of 5.0 that demand the same of a 3.1.1 connection (- for none), one sentence.

A row that has the number of 5.0 and is played in 3.1.1 too holds the statement beside it here. The standard prints
3.1.2-7   as      3.1.2.7  and 3.8.3-4 as 3-8.3-4.
"""

from typing import Final

TABLE: Final = """
1.5.3-1   both    1.5.4-1  a string is well-formed UTF-8; another closes the connection
1.5.3-2   both    1.5.4-2,4.7.3-2  a string has no U+0000; one that has closes the connection
1.5.3-3   both    1.5.4-3  EF BB BF is U+FEFF wherever it stands, and is never skipped or stripped
2.2.2-1   both    2.1.3-1  reserved flags of the fixed header have the value that is listed
2.2.2-2   both    2.1.3-1,3.6.1-1,3.8.1-1,3.10.1-1  invalid flags close the connection
2.3.1-1   both    2.2.1-3  SUBSCRIBE, UNSUBSCRIBE and PUBLISH above QoS 0 have a packet identifier that is not 0
2.3.1-2   client  -  a new packet of a client has an unused identifier
2.3.1-3   client  -  what a client sends again has the identifier it had
2.3.1-4   server  2.2.1-4  the same holds for the server and its PUBLISH above QoS 0
2.3.1-5   both    2.2.1-2  a PUBLISH of QoS 0 has no packet identifier
2.3.1-6   both    2.2.1-5  PUBACK, PUBREC and PUBREL carry the identifier of their PUBLISH
2.3.1-7   both    2.2.1-6  SUBACK and UNSUBACK carry the identifier of their request
3.1.0-1   both    3.1.0-1  the first packet of a client is a CONNECT
3.1.0-2   server  3.1.0-2  a second CONNECT is a protocol violation, and disconnects the client
3.1.2-1   server  3.1.2-1  a CONNECT of another protocol name is not processed as one of MQTT
3.1.2-2   server  3.1.2-2  an unknown protocol level is answered with CONNACK 0x01, and closed
3.1.2-3   server  3.1.2-3  the reserved flag of CONNECT is checked to be 0
3.1.2-4   both    3.1.2-5,3.1.2-6  clean session 0: the session goes on, or begins, and is kept afterwards
3.1.2-5   server  4.5.0-1  and QoS 1 and 2 messages of its subscriptions are kept for it
3.1.2-6   both    3.1.2-4  clean session 1: the session there was is discarded, and the new one ends with its connection
3.1.2-7   server  -  retained messages are no part of a session, and do not end with it
3.1.2-8   server  3.1.2-7,3.1.2-8  a will is kept, and published when the connection ends other than by DISCONNECT
3.1.2-9   both    3.1.2-9  with the will flag, will topic and message are there; will QoS and retain are used
3.1.2-10  server  -  a will is gone once it was published or DISCONNECT has come
3.1.2-11  both    -  without the will flag will QoS and retain are 0, and no will topic and message are there
3.1.2-12  server  -  without the will flag no will is published
3.1.2-13  both    3.1.2-11  without a will the will QoS is 0
3.1.2-14  both    3.1.2-12  a will QoS is not 3
3.1.2-15  both    3.1.2-13  without a will the will retain is 0
3.1.2-16  server  3.1.2-14  without will retain a will is not published as a retained message
3.1.2-17  server  3.1.2-15  with will retain it is
3.1.2-18  both    3.1.2-16  without its flag there is no user name
3.1.2-19  both    3.1.2-17  with its flag there is a user name
3.1.2-20  both    3.1.2-18  without its flag there is no password
3.1.2-21  both    3.1.2-19  with its flag there is a password
3.1.2-22  both    -  without a user name there is no password
3.1.2-23  client  3.1.2-20  with a keep-alive and nothing else to send a client sends PINGREQ
3.1.2-24  server  3.1.2-22  after one and a half keep-alives of silence the server disconnects the client
3.1.3-1   both    3.1.3-1  the fields of CONNECT's payload come in their order
3.1.3-2   both    3.1.3-2  a session is known by its client identifier
3.1.3-3   both    3.1.3-3  the client identifier is there, and is the first field of the payload
3.1.3-4   both    3.1.3-4  the client identifier is a UTF-8 string
3.1.3-5   server  3.1.3-5  client identifiers of 1 to 23 letters and digits are taken
3.1.3-6   server  -  a client without an identifier, where that is allowed, is given one that is unique
3.1.3-7   client  -  a client without an identifier sets clean session 1
3.1.3-8   server  -  without an identifier and with clean session 0: CONNACK 0x02, and closed
3.1.3-9   server  -  a client whose identifier is refused gets CONNACK 0x02, and is closed
3.1.3-10  both    3.1.3-11  the will topic is a UTF-8 string
3.1.3-11  both    3.1.3-12  the user name is a UTF-8 string
3.1.4-1   server  -  a CONNECT that is not as section 3.1 says closes the connection without a CONNACK
3.1.4-2   server  3.1.4-3  a client that connects again ends its former connection
3.1.4-3   server  3.1.4-4  clean session is done as it says
3.1.4-4   server  3.1.4-5  a CONNECT that is taken is answered with CONNACK 0x00
3.1.4-5   server  3.1.4-6  after a refused CONNECT nothing is processed
3.2.0-1   server  3.2.0-1  the first packet from the server is a CONNACK
3.2.2-1   server  3.2.2-2  clean session 1: Session Present is 0
3.2.2-2   server  3.2.2-3  clean session 0: Session Present is 1 where there is a session
3.2.2-3   server  3.1.2-6  and 0 where there is none
3.2.2-4   server  -  with a code other than 0 Session Present is 0
3.2.2-5   server  -  after CONNACK with a code other than 0 the connection is closed
3.2.2-6   server  -  where no code fits the connection is closed without a CONNACK
3.3.1-1   both    3.3.1-1  what is sent again has DUP 1
3.3.1-2   both    3.3.1-2  DUP is 0 at QoS 0
3.3.1-3   server  3.3.1-3  DUP to a receiver does not depend on DUP from the publisher
3.3.1-4   both    3.3.1-4  not both QoS bits are set; such a packet closes the connection
3.3.1-5   server  3.3.1-5  a retained message and its QoS are kept for future subscribers
3.3.1-6   server  -  a new subscription gets the last retained message of each topic that it matches
3.3.1-7   server  -  a retained message of QoS 0 discards the one there was
3.3.1-8   server  -  what is sent for a new subscription has RETAIN 1
3.3.1-9   server  3.3.1-12  what is sent for a standing one has RETAIN 0
3.3.1-10  server  3.3.1-6  a retained message without payload is delivered, and removes the one there was
3.3.1-11  server  3.3.1-7  and is not kept itself
3.3.1-12  server  3.3.1-8  a message that is not retained leaves the retained one alone
3.3.2-1   both    3.3.2-1  the topic name is the first field of PUBLISH, and a UTF-8 string
3.3.2-2   both    3.3.2-2  a topic name has no wildcards
3.3.2-3   server  3.3.2-3  the topic name of what a client gets matches its subscription
3.3.4-1   both    3.3.4-1  a PUBLISH is answered as its QoS demands
3.3.5-1   server  3.3.4-2  overlapping subscriptions: the message comes with the highest QoS of them
3.3.5-2   server  -  a PUBLISH that is not authorized is acknowledged as any other, or closes the connection
3.6.1-1   both    3.6.1-1  the flags of PUBREL are 0010; others close the connection
3.8.1-1   both    3.8.1-1  the flags of SUBSCRIBE are 0010; others close the connection
3.8.3-1   both    3.8.3-1  topic filters are UTF-8 strings
3.8.3-2   server  -  a server without wildcards rejects filters that have some
3.8.3-3   both    3.8.3-2  a SUBSCRIBE has at least one filter
3.8.3-4   server  3.8.3-5  reserved bits, or a QoS that is none, make SUBSCRIBE malformed, and close the connection
3.8.4-1   server  3.8.4-1  a SUBSCRIBE is answered with a SUBACK
3.8.4-2   server  3.8.4-2  of the same packet identifier
3.8.4-3   server  3.8.4-3  subscribing again replaces the subscription; retained messages come again, none is lost
3.8.4-4   server  3.8.4-5  several filters in one packet are as several packets, with one SUBACK
3.8.4-5   server  3.8.4-6,3.8.4-7  a SUBACK has a code for each filter: the QoS granted, or that it failed
3.8.4-6   server  3.8.4-8  a message comes with the lower of its QoS and the one granted
3.9.3-1   server  3.9.3-1  the codes of SUBACK are in the order of the filters
3.9.3-2   server  -  the codes of SUBACK are 0x00, 0x01, 0x02 and 0x80 only
3.10.1-1  both    3.10.1-1  the flags of UNSUBSCRIBE are 0010; others close the connection
3.10.3-1  both    3.10.3-1  topic filters to unsubscribe are UTF-8 strings
3.10.3-2  both    3.10.3-2  an UNSUBSCRIBE has at least one filter
3.10.4-1  server  3.10.4-1  filters are compared character by character, and the subscription found is deleted
3.10.4-2  server  3.10.4-2  after that no new message of it is added for delivery
3.10.4-3  server  3.10.4-3  and deliveries that were begun are completed
3.10.4-4  server  3.10.4-4  an UNSUBSCRIBE is answered with an UNSUBACK of its packet identifier
3.10.4-5  server  3.10.4-5  also where nothing was deleted
3.10.4-6  server  3.10.4-6  several filters in one packet are as several packets, with one UNSUBACK
3.12.4-1  server  3.12.4-1  a PINGREQ is answered with a PINGRESP
3.14.1-1  server  3.14.1-1  reserved bits of DISCONNECT are checked to be 0
3.14.4-1  client  3.14.4-2  after DISCONNECT the client closes the connection
3.14.4-2  client  -  and sends nothing more
3.14.4-3  server  3.14.4-3  DISCONNECT discards the will
4.1.0-1   both    4.1.0-1  the session is kept for as long as it lasts
4.1.0-2   both    -  a session lasts at least as long as its connection
4.3.1-1   both    4.3.1-1  QoS 0: PUBLISH has QoS 0 and DUP 0
4.3.2-1   both    4.3.2-1,4.3.2-2,4.3.2-3  QoS 1, sender: an unused identifier; unacknowledged until PUBACK
4.3.2-2   both    4.3.2-4,4.3.2-5  QoS 1, receiver: PUBACK; after it the same identifier is a new message
4.3.3-1   both    4.3.3-1,4.3.3-2,4.3.3-3,4.3.3-5,4.3.3-6  QoS 2, sender: PUBLISH, then PUBREL, each until its answer
4.3.3-2   both    4.3.3-8,4.3.3-10,4.3.3-11,4.3.3-12  QoS 2, receiver: PUBREC, once delivered; PUBCOMP to PUBREL
4.4.0-1   both    4.4.0-1  a session that goes on sends again what was not acknowledged, with its identifiers
4.5.0-1   server  4.5.0-1  a message that is taken is added to the sessions of the clients with matching subscriptions
4.5.0-2   client  4.5.0-2  a client acknowledges what it gets
4.6.0-1   both    -  what is sent again is sent in the original order
4.6.0-2   client  4.6.0-2  a client sends PUBACK in the order of PUBLISH
4.6.0-3   client  4.6.0-3  a client sends PUBREC in the order of PUBLISH
4.6.0-4   client  4.6.0-4  a client sends PUBREL in the order of PUBREC
4.6.0-5   server  4.6.0-6  every topic is an ordered one by default
4.6.0-6   server  4.6.0-5  messages of one client, topic and QoS are forwarded in the order in which they came
4.7.1-1   both    4.7.0-1  wildcards are in topic filters only
4.7.1-2   both    4.7.1-1  # is the last level and a whole one
4.7.1-3   both    4.7.1-2  + is a whole level
4.7.2-1   server  4.7.2-1  a filter that begins with a wildcard does not match a topic that begins with $
4.7.3-1   both    4.7.3-1  topic names and filters are not empty
4.7.3-2   both    4.7.3-2  topic names and filters have no U+0000
4.7.3-3   both    4.7.3-3  topic names and filters have 65 535 bytes at most
4.7.3-4   server  4.7.3-4  matching normalizes nothing
4.8.0-1   both    4.13.1-1  a protocol violation closes the connection
4.8.0-2   both    -  a transient error while a packet is processed closes the connection
6.0.0-1   both    6.0.0-1  MQTT is in binary frames of WebSocket; another data frame closes the connection
6.0.0-2   both    6.0.0-2  a frame's boundary is no packet's boundary
6.0.0-3   client  6.0.0-3  the client offers the subprotocol mqtt
6.0.0-4   server  6.0.0-4  the server answers with the subprotocol mqtt
7.0.0-1   server  -  a server that connects to other servers conforms as a client too
7.0.0-2   both    -  no extension of the standard is needed to work with another implementation
7.1.1-1   server  4.2.0-1  a server supports a transport that is an ordered, lossless stream of bytes both ways
7.1.2-1   client  -  a client does
"""
