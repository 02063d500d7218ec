"""Which queues move to spread them over nodes."""

from mqttlite.extensions.nodes.balance import Balance, Placed


def test_queues_with_the_fewest_messages_move_until_each_node_has_as_many() -> None:
    placed = [Placed(f"q{depth}", "a", depth) for depth in range(7)] + [Placed("x", "d", 0)]
    found = Balance(["a", "b", "c"], placed)
    moves: list[tuple[str, str]] = []
    while (wanted := found.next()) is not None:
        queue, to = wanted
        if queue.name == "q1":
            found.stayed(queue)
        else:
            moves.append((queue.name, to))
            found.moved(queue, to)
    assert moves == [("q0", "b"), ("q2", "c"), ("q3", "b"), ("q4", "c"), ("q5", "d")]
    assert found.counts == {"a": 2, "b": 2, "c": 2, "d": 2}
