"""Links between the documents, as GitHub shows them. That the site has every page is for Sphinx to say (tools/docs)."""

import pytest

from tests.support.documents import ROOT, anchors, links


@pytest.mark.long
def test_every_link_leads_somewhere() -> None:
    broken = []
    for page, target in links():
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_every_design_decision_is_in_the_list() -> None:
    folder = ROOT / "docs" / "design"
    listed = sorted(target for page, target in links() if page == folder / "index.md")
    assert listed == sorted(page.name for page in folder.glob("[0-9]*.md"))
