"""Each library over each transport, feature by feature, where each new connection comes to the next of three nodes.

What is left out: retained messages, which carry a further property between nodes, and the order in which members of all
nodes take turns.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.nodes import RunningNodes
from tests.interop.test_matrix import (
    _agent,
    far,
    line,
    test_a_request_is_answered_by_every_client,
    test_a_session_that_is_resumed_brings_what_was_queued_in_order,
    test_a_shared_subscription_gives_each_message_to_one,
    test_a_topic_alias_of_a_client_stands_for_its_topic,
    test_a_topic_alias_of_ours_is_understood,
    test_messages_of_every_qos_arrive_as_they_were_sent_in_both_directions,
    test_no_message_of_qos_1_is_lost_when_the_connection_breaks_while_they_come,
    test_properties_arrive_as_they_were_sent_in_both_directions,
    test_the_will_of_a_client_that_says_goodbye_is_published_only_if_it_asks_for_that,
    test_the_will_of_a_client_whose_connection_breaks_is_published,
)

__all__ = (
    "_agent",
    "far",
    "line",
    "test_a_request_is_answered_by_every_client",
    "test_a_session_that_is_resumed_brings_what_was_queued_in_order",
    "test_a_shared_subscription_gives_each_message_to_one",
    "test_a_topic_alias_of_a_client_stands_for_its_topic",
    "test_a_topic_alias_of_ours_is_understood",
    "test_messages_of_every_qos_arrive_as_they_were_sent_in_both_directions",
    "test_no_message_of_qos_1_is_lost_when_the_connection_breaks_while_they_come",
    "test_properties_arrive_as_they_were_sent_in_both_directions",
    "test_the_will_of_a_client_that_says_goodbye_is_published_only_if_it_asks_for_that",
    "test_the_will_of_a_client_whose_connection_breaks_is_published",
)

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(certificate_files: Path) -> Iterator[RunningNodes]:
    with RunningNodes(certificate_files) as running:
        yield running
