"""The response cache by the tests of cache-tests.fyi: the npm package http-cache-tests."""

import json
import re
import subprocess

import pytest

from support.book import SOURCE
from support.server import ROOT

MODULES = ROOT / "target" / "npm" / "node_modules"
# Of 157 and 86.
REQUIRED, OPTIMAL = 143, 79

pytestmark = pytest.mark.skipif(
    not (MODULES / "http-cache-tests").exists(), reason="http-cache-tests is not here: ./test fetches it with npm"
)


@pytest.mark.paced
def test_the_cache_passes_the_tests_that_the_book_does_not_explain(serve):
    command = ["node", "--no-warnings", str(ROOT / "tests/support/http_cache_tests.mjs"), str(MODULES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        port = int(node.stdout.readline())
        server = serve(route=f'proxy = "http://127.0.0.1:{port}"\ncache = {{ responses = true, set_cookie = true }}')
        out, _ = node.communicate(f"http://127.0.0.1:{server.port}\n", timeout=120)
    tests = json.loads(out)
    page = (SOURCE / "response-cache.md").read_text()
    rows = re.findall(r"^\| (`.+?) \|", page[page.index("## Conformance") :], re.M)
    explained = {name for row in rows for name in re.findall(r"`(.+?)`", row)}
    unexplained = {
        test["id"]: test["result"] for test in tests if test["kind"] != "check" and not test["passed"] and test["id"] not in explained
    }
    assert not unexplained
    assert explained <= {test["id"] for test in tests}, "the book explains a test that does not exist"
    for kind, least in (("required", REQUIRED), ("optimal", OPTIMAL)):
        passed = [test["id"] for test in tests if test["kind"] == kind and test["passed"]]
        assert len(passed) >= least, (kind, len(passed))
