"""Pages lead where they say: files, headings, and every page reached from another."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "examples").rglob("*.md"))]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def prose(path):
    """The page without its blocks of code, where brackets mean something else."""
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(path):
    """What GitHub and Sphinx make of the headings."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(path):
    return ["".join(found) for found in LINK.findall(prose(path))]


def name_of(path):
    return path.relative_to(REPOSITORY).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings(page):
    for link in links(page):
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{link}: there is no {target}"
        assert file.is_relative_to(REPOSITORY), f"{link} leaves the repository"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{link}: no heading makes #{anchor}"


def test_every_page_of_the_documentation_is_linked():
    linked = {(page.parent / link.partition("#")[0]).resolve() for page in PAGES for link in links(page)}
    for page in sorted((REPOSITORY / "examples" / "docs").glob("*.md")):
        if page.name != "index.md":
            assert page in linked, f"no page links to {page.name}"
