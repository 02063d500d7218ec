"""The alarm about documents that may not be those of all nodes."""

from mqttlite.extensions.nodes.documents_alarm import LASTS_S, REFUSED_S, DocumentsAlarm
from mqttlite.extensions.nodes.held_document import DocumentState

ACL_BEHIND = "acl is not known to be that of all nodes: NATS is away."


def document(
    name: str = "acl", *, reason: str = "", kept: str = "", edits: int = 0, refused: int = 0, is_current: bool = True
) -> DocumentState:
    return DocumentState(
        name=name,
        revision=1,
        current=is_current,
        reason=reason,
        refused=refused,
        kept=kept,
        refused_edits=edits,
    )


class Told:
    def __init__(self) -> None:
        self.said: list[tuple[bool, str]] = []
        self.alarm = DocumentsAlarm(lambda is_active, detail: self.said.append((is_active, detail)))

    def look(self, now: float, *documents: DocumentState) -> list[tuple[bool, str]]:
        """What is told now."""
        self.said.clear()
        self.alarm.look(documents, now)
        return list(self.said)


def test_a_document_that_differs_for_longer_than_a_change_takes_is_told_once_and_its_end() -> None:
    told = Told()
    behind = document(reason="NATS is away", is_current=False)
    assert told.look(0.0, behind) == []
    assert told.look(LASTS_S - 0.1, behind) == []
    assert told.look(LASTS_S, behind) == [(True, ACL_BEHIND)]
    assert told.look(LASTS_S + 1, behind) == []
    assert told.look(LASTS_S + 2, document()) == [(False, "")]
    assert told.look(LASTS_S + 3, behind) == []  # the time begins anew


def test_each_document_has_its_own_time_and_sentence() -> None:
    told = Told()
    behind = document(reason="NATS is away", is_current=False)
    told.look(0.0, behind, document("bans"))
    other = document("bans", is_current=False)
    assert told.look(LASTS_S, behind, other) == [(True, ACL_BEHIND)]
    compared = "bans is not known to be that of all nodes: it is compared with that of the other nodes."
    assert told.look(2 * LASTS_S, behind, other) == [(True, f"{ACL_BEHIND} {compared}")]


def test_an_edit_that_was_refused_is_named_for_a_while_with_its_file() -> None:
    told = Told()
    edit = "An edit of acl was refused, for it was of an older revision: it is in acl.refused."
    assert told.look(0.0, document()) == []
    assert told.look(1.0, document(kept="acl.refused", edits=1)) == [(True, edit)]
    assert told.look(REFUSED_S, document(kept="acl.refused", edits=1)) == []
    assert told.look(REFUSED_S + 1.0, document(kept="acl.refused", edits=1)) == [(False, "")]
    assert told.look(REFUSED_S + 2.0, document(kept="acl.refused-2", edits=2)) == [
        (True, edit.replace(".refused.", ".refused-2."))
    ]


def test_a_refused_edit_is_told_though_its_file_has_the_name_of_one_that_was_removed() -> None:
    told = Told()
    first = told.look(0.0, document(kept="acl.refused", edits=1))
    assert told.look(REFUSED_S, document(kept="acl.refused", edits=1)) == [(False, "")]
    assert told.look(REFUSED_S + 1.0, document(kept="acl.refused", edits=1, refused=2)) == []  # a change, not an edit
    assert told.look(REFUSED_S + 2.0, document(kept="acl.refused", edits=2, refused=3)) == first
