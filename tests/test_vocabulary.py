"""Documents, help texts, messages and code use the terms of the field.

`TERMS` has the words that earlier versions used and their replacements. A word is an error wherever a reader meets it:
in the documents, in the help of each command, and in the string literals, comments and names of the program.
"""

import re
import subprocess
from pathlib import Path

import pytest

from support.server import DUNLIN, ROOT

TERMS = {
    r"answer(?:s|ed|ing)?": "response, respond",
    r"ask(?:s|ed|ing)?": "request, query",
    r"tell(?:s|ing)?|told": "report, log, notify, print",
    r"say(?:s|ing)?|said": "report, state, print",
    r"gates?": "check",
    r"refus(?:e|es|ed|als?)": "reject",
    r"newcomers?": "new connection, new request",
    r"somebody|nobody|whoever": "another user, no client, the client that",
    r"doors?": "listener",
    r"facts": "metadata",
    r"successors?": "new process, new generation",
    r"in sight": "observability",
    r"the floor": "baseline",
    r"anew": "again",
    r"let(?:s|ting)? go of|let go": "evict, release",
    r"tak(?:e|es|en|ing) in": "ingest, receive",
    r"hand(?:s|ed|ing)? over": "forward, pass",
}
WORDS = re.compile(rf"(?<![\w`{{./-])(?:{'|'.join(TERMS)})(?![\w`}}/=-])", re.IGNORECASE)

# The same words in other meanings: the system's errors and users.
OTHER = re.compile(r"connections? (?:is |are )?refused|instead of being refused|user nobody", re.IGNORECASE)

# Strings that are not texts for readers: names that peers, kernels or files prescribe.
NAMES = {
    "crates/config/src/renamed.rs": "former names of keys",
    "crates/tls/src/acme/files.rs": "a key in files of earlier versions",
}

# One word of a file: a method of quinn-proto.
METHODS = {"crates/quic/src/endpoint.rs": "refuse"}

# "Answer" is a term of DNS, connections are refused, and reports have facts.
DNS = {
    "dns.rs", "cached_lookup.rs", "current_upstreams.rs", "resolve.rs", "reverse_dns.rs", "resolver.rs", "servers.rs", "targets.rs",
    "update.rs",
}
ELSEWHERE = re.compile(r"refused|facts", re.IGNORECASE)

# A comment, a raw string, a string, or a character.
RUST = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\bb?r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)|b?"(?P<text>(?:\\.|[^"\\])*)"|'(?:\\.[^']*|[^'\\\n])'""",
    re.DOTALL,
)


def found_in(text):
    """The former words in a text, each with the line that it is in."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        for word in WORDS.finditer(OTHER.sub("", line)):
            yield number, word[0], line.strip()


def assert_none(found):
    found = list(found)
    assert not found, "\n" + "\n".join(f"{where}: {word!r} in {line!r}" for where, word, line in found)


def documents():
    # The change log quotes former names in code spans.
    yield from [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
    yield from sorted((ROOT / "docs" / "src").rglob("*.md"))


def prose(text):
    """The text without code blocks and code spans, with the lines in place."""
    text = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


@pytest.mark.parametrize("document", [str(path.relative_to(ROOT)) for path in documents()])
def test_documents_use_the_terms_of_the_field(document):
    text = prose((ROOT / document).read_text())
    assert_none((f"{document}:{number}", word, line) for number, word, line in found_in(text))


def help_of(*arguments):
    done = subprocess.run([DUNLIN, *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_uses_the_terms_of_the_field():
    overview = help_of("help")
    commands = re.findall(r"^  ([a-z]+) ", overview.partition("Commands:")[2].partition("\n\n")[0], re.MULTILINE)
    assert {"serve", "check", "load", "compare", "top", "watch"} <= set(commands)
    texts = {"help": overview, **{f"{name} --help": help_of(name, "--help") for name in commands if name != "help"}}
    assert_none(
        (f"dunlin {name}", word, line) for name, text in texts.items() for _, word, line in found_in(text)
    )


def literals(source):
    """The string literals of a Rust file outside of its tests, with their line numbers."""
    tests = re.search(r"^#\[cfg\(test\)\]\nmod \w+ \{", source, re.MULTILINE)
    if tests:
        source = source[: tests.start()]
    for token in RUST.finditer(source):
        text = token["raw"] if token["raw"] is not None else token["text"]
        if text:
            yield source.count("\n", 0, token.start()) + 1, re.sub(r"\\\n\s*", "", text)


def sources():
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        name = str(path.relative_to(ROOT))
        is_test = {"tests", "testing"} & set(path.parts) or path.name in ("tests.rs", "testing.rs")
        if not is_test and name not in NAMES:
            yield path, name


def test_string_literals_use_the_terms_of_the_field():
    read = 0
    found = []
    for path, name in sources():
        for number, text in literals(path.read_text()):
            read += 1
            found.extend((f"{name}:{number}", word, line) for _, word, line in found_in(text))
    assert read > 5_000, "the literals are found"
    assert_none(found)


def code(source):
    """The comments and the names in a Rust file, with their line numbers; the words of names are separated by spaces."""
    for token in RUST.finditer(source):
        if token[0].startswith(("//", "/*")):
            comment = re.sub(r"`[^`\n]*`", "", token[0])
            yield source.count("\n", 0, token.start()) + 1, comment
    for number, line in enumerate(RUST.sub(lambda token: "\n" * token[0].count("\n"), source).split("\n"), 1):
        for name in re.findall(r"\w+", line):
            yield number, re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name)


def test_comments_and_names_use_the_terms_of_the_field():
    read = 0
    found = []
    for path, name in sources():
        is_dns = path.name in DNS
        for number, text in code(path.read_text()):
            read += 1
            found.extend(
                (f"{name}:{number}", word, line)
                for _, word, line in found_in(text)
                if not ELSEWHERE.fullmatch(word) and word != METHODS.get(name) and not (is_dns and word.lower().startswith("answer"))
            )
    assert read > 100_000, "the comments and names are found"
    assert_none(found)


def test_former_words_are_found():
    assert [word for _, word, _ in found_in("Who asks is told\nto let go of it.")] == ["asks", "told", "let go of"]
    assert not list(found_in("Connection refused, user nobody, /ask, `gate`, navigates"))
    assert list(literals('let a = "one \\\n  two"; // "three"\n#[cfg(test)]\nmod tests {\n"four"}')) == [(1, "one two")]
