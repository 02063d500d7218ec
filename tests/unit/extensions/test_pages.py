"""The table of pages that extensions add."""

import pytest

from mqttlite.extensions.pages import MAX_PAGES, ExtensionPages


@pytest.mark.parametrize("name", ["", "A", "a/b", "-a", "a b", "a" * 41])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the name of a page has 1 to 40 of a-z, 0-9 and -"):
        ExtensionPages().add(name, "Title", str)


def test_a_name_is_one_page() -> None:
    pages = ExtensionPages()
    pages.add("a" * 40, "First", str)
    with pytest.raises(ValueError, match=r"there is a page a+ already"):
        pages.add("a" * 40, "Second", str)
    assert [title for title, _ in pages.by_name.values()] == ["First"]


def test_the_number_of_pages_is_limited() -> None:
    pages = ExtensionPages()
    for number in range(MAX_PAGES):
        pages.add(f"page-{number}", "Title", str)
    with pytest.raises(ValueError, match="extensions have 20 pages already, which is the most"):
        pages.add("one-more", "Title", str)
    assert len(pages.by_name) == MAX_PAGES
