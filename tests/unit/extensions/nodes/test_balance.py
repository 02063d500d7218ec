"""Which queues move to spread them over nodes."""

from mqttlite.extensions.nodes.balance import Balance, Placed


def test_queues_with_the_fewest_messages_move_until_each_node_has_as_many() -> None:
    placed = [Placed(f"q{depth}", "a", depth) for depth in range(7)] + [Placed("x", "d", 0)]
    found = Balance(["a", "b", "c", "d"], placed)
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


def test_a_node_that_drains_gives_all_of_its_queues_to_the_others() -> None:
    found = Balance(["b", "c"], [Placed("q0", "a", 9), Placed("q1", "a", 0), Placed("q2", "b", 0)])
    moves: list[tuple[str, str]] = []
    while (wanted := found.next()) is not None:
        moves.append((wanted[0].name, wanted[1]))
        found.moved(*wanted)
    assert moves == [("q1", "c"), ("q0", "b")]
    assert found.counts == {"a": 0, "b": 2, "c": 1}
