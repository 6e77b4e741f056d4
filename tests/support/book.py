"""The pages of the book, and their code blocks."""

import re
from dataclasses import dataclass

from support.server import ROOT

SOURCE = ROOT / "docs" / "src"
PAGES = [ROOT / "README.md", *sorted(SOURCE.glob("*.md"))]
# Also the recipes, whose examples have tests of their own.
EVERY_PAGE = [ROOT / "README.md", *sorted(SOURCE.rglob("*.md"))]


@dataclass
class Block:
    """A fenced code block."""

    language: str
    text: str
    line: int
    before: str
    """The text between the block and the one before it."""

    @property
    def not_run(self):
        """The reason why the block is not run, in a comment in front of it."""
        found = re.search(r"<!-- not run: (.+?) -->\s*\Z", self.before)
        return found and found[1]

    @property
    def file(self):
        """The name of the file that the block shows: the text in front of it ends with the name and a colon."""
        found = re.search(r"`([\w./-]+)`:\s*\Z", self.before)
        return found and found[1]

    @property
    def follows_directly(self):
        """Whether nothing stands between the block and the one before it."""
        return not self.before.strip()


def blocks(page):
    """The code blocks of a page."""
    text, end = page.read_text(), 0
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(found[1], found[2], line, text[end : found.start()])
        end = found.end()
