"""The schema in an editor: taplo, which is in Even Better TOML for VS Code, Helix, Neovim and Zed, accepts every example with it.

./test fetches taplo with npm.
"""

import json
import subprocess
from collections import Counter

import pytest

from support.book import EVERY_PAGE, blocks
from support.server import DUNLIN, ROOT

TAPLO = ROOT / "target" / "npm" / "node_modules" / ".bin" / "taplo"
needs_taplo = pytest.mark.skipif(not TAPLO.exists(), reason="taplo is not here: ./test fetches it with npm")

# Other files of TOML that pages show.
OTHERS = ("[package]", "[dependencies]", "[lib]", "[component]")


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    path = tmp_path_factory.mktemp("schema") / "dunlin.schema.json"
    path.write_bytes(subprocess.check_output([DUNLIN, "check", "--schema"]))
    return path


def lint(schema, folder):
    """What taplo finds in the files of the folder."""
    (folder / "taplo.toml").write_text("")
    done = subprocess.run(
        [TAPLO, "lint", "--schema", f"file://{schema}", *sorted(path.name for path in folder.glob("*.toml") if path.name != "taplo.toml")],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )
    return done.returncode, done.stderr


def examples():
    """Name and text of every complete configuration, and of each part of one, in the book and in examples/."""
    for path in sorted((ROOT / "examples").glob("*.toml")):
        yield path.stem, path.read_text()
    for page in EVERY_PAGE:
        for block in blocks(page):
            if block.language == "toml" and "…" not in block.text and not block.text.startswith(OTHERS):
                # A route that is shown without its site.
                start = "[[site]]\n" if "[[site]]" not in block.text and "[[site.route]]" in block.text else ""
                yield f"{page.parent.name}-{page.stem}-{block.line}", start + block.text


@needs_taplo
def test_every_example_is_valid_in_an_editor(schema, tmp_path):
    names = Counter()
    for name, text in examples():
        names[name] += 1
        (tmp_path / f"{name}.toml").write_text(text)
    assert len(names) > 100 and max(names.values()) == 1
    code, found = lint(schema, tmp_path)
    assert code == 0, found


@needs_taplo
@pytest.mark.parametrize(
    "text, expected",
    [
        ("[[site]]\nrott = '/srv'\n", "'rott' was unexpected"),
        ("[[listen]]\naddress = 8080\n", '8080 is not of type "string"'),
    ],
)
def test_a_mistake_is_marked_in_an_editor(schema, tmp_path, text, expected):
    (tmp_path / "a.toml").write_text(text)
    code, found = lint(schema, tmp_path)
    assert code != 0 and expected in found, found


def test_keys_have_descriptions_to_complete_them_with(schema):
    whole = json.loads(schema.read_text())
    assert whole["$id"] and whole["$schema"] and whole["title"]
    bare = [
        f"{name}.{key}"
        for name, table in whole["$defs"].items()
        for key, value in table.get("properties", {}).items()
        if not value.get("description")
    ]
    assert not bare, bare
