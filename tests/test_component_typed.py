"""Components with typed calls: JSON in and out, errors with their place, and the OpenAPI document."""

import json

import pytest

from support.component_server import component_server, metric
from support.components import built, has_target
from support.http import post
from support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(not has_target(), reason="rustup target add wasm32-wasip2"),
    pytest.mark.usefixtures("orderly_stop"),
]


@pytest.fixture(scope="session")
def orders():
    return built("orders")


@pytest.fixture
def server(serve, orders):
    return component_server(serve, orders, settings='cpu = "200ms"')


def call(server, path, parameters):
    """A call: status, and the JSON of the response."""
    text = parameters if isinstance(parameters, bytes) else json.dumps(parameters).encode()
    status, fields, body = post(server, path, text, "Content-Type: application/json")
    expected = "application/problem+json" if status >= 400 and status != 422 else "application/json"
    if body:
        assert fields["content-type"].partition(";")[0] == expected, (status, fields, body)
    return status, json.loads(body) if body else None


QUOTE = "/app/orders/quote"


def test_a_call_gives_its_result_or_its_error(server):
    item = {"name": "a", "count": 2, "price": 150}
    assert call(server, QUOTE, {"items": [item]}) == (200, {"cents": 300, "items": 2, "currency": "euro"})
    assert call(server, QUOTE, {"currency": "yen", "items": [item, item]}) == (200, {"cents": 600, "items": 4, "currency": "yen"})
    assert call(server, QUOTE, {"items": []}) == (422, "empty")
    assert call(server, QUOTE, {"items": [{"name": "b", "count": 1}]}) == (422, {"unknown-item": "b"})
    assert call(server, QUOTE, {"items": [{"name": "b", "count": 2000, "price": None}]}) == (422, {"too-many": [2000, 1000]})
    # Integers that a number does not hold exactly are strings.
    large = {"name": "a", "count": 1, "price": "18446744073709551615"}
    assert call(server, QUOTE, {"items": [large]})[1]["cents"] == "18446744073709551615"
    assert call(server, "/app/orders/forget", {}) == (204, None)
    assert call(server, "/app/orders/forget", b"") == (204, None)
    assert call(server, "/app/version", {}) == (200, "1.2.0")
    # The interface has longer names, too.
    for name in ("example:shop/orders", "example:shop/orders@1.2.0"):
        assert call(server, f"/app/{name}/quote", {"items": []}) == (422, "empty")


def test_values_of_all_types_pass(server):
    values = {
        "bytes": "AAH/", "letter": "ß", "ratio": "NaN", "large": -5, "wishes": ["gift", "no-plastic"],
        "pair": ["x", True], "nested": {"some": None}, "outcome": {"err": "no"},
    }  # fmt: skip
    assert call(server, "/app/orders/echo", values) == (200, list(values.values()))


def test_parameters_that_do_not_fit_have_their_place(server):
    for parameters, pointer in [
        ({"items": [{"name": "a", "count": -1}]}, "/items/0/count"),
        ({"items": [{"name": "a"}]}, "/items/0/count"),
        ({"items": [{"name": "a", "count": 1, "x": 1}]}, "/items/0"),
        ({"items": [], "currency": "dollar"}, "/currency"),
        ({"item": []}, ""),
        (b"[]", ""),
        (b'{"items": [', "/items/0"),
        (b"\xff", ""),
        (b"", "/items"),
    ]:
        status, problem = call(server, QUOTE, parameters)
        assert status == 400 and problem["pointer"] == pointer and problem["detail"], (parameters, problem)
    assert metric(server, "dunlin_component_stops_total") == 0


def test_paths_and_methods_that_do_not_exist(server):
    for path in ("/app/orders/other", "/app/other/quote", "/app/orders", "/app/orders/quote/more"):
        assert post(server, path, b"{}")[0] == 404, path
    status, fields, _ = server.get(QUOTE)
    assert status == 405 and fields["allow"] == "POST"


def test_a_call_that_fails_or_hangs(server):
    assert post(server, "/app/orders/fail", b'{"why": "on purpose"}')[0] == 502
    assert "unreachable" in server.logged("was stopped")
    server.logged("on purpose")
    assert post(server, "/app/orders/hang", b"")[0] == 504
    wait_until(lambda: metric(server, "dunlin_component_instances") == 0, "no instance")
    assert call(server, QUOTE, {"items": []}) == (422, "empty")


def test_the_openapi_document_is_valid_and_describes_the_calls(server):
    validator = pytest.importorskip("openapi_spec_validator", reason="pip install openapi-spec-validator")
    jsonschema = pytest.importorskip("jsonschema")
    status, fields, body = server.get("/app/")
    assert status == 200 and "json" in fields["content-type"]
    document = json.loads(body)
    validator.validate(document)
    assert document["openapi"].startswith("3.1") and document["servers"][0]["url"].rstrip("/") == "/app"
    assert sorted(document["paths"]) == [*(f"/orders/{name}" for name in ("echo", "fail", "forget", "hang", "quote")), "/version"]

    def accepts(schema, value):
        schema = {**schema, "components": document["components"]}
        return jsonschema.Draft202012Validator(schema).is_valid(value)

    def schema_of(part):
        return part["content"]["application/json"]["schema"]

    quote = document["paths"]["/orders/quote"]["post"]
    parameters = schema_of(quote["requestBody"])
    # What the document permits is what the server accepts.
    for value in [
        {"items": []},
        {"items": [{"name": "a", "count": 1}]},
        {"items": [{"name": "a", "count": 1, "price": "7"}], "currency": "yen"},
        {"items": [{"name": "a", "count": 1, "price": None}], "currency": None},
        {"items": [{"name": "a", "count": -1}]},
        {"items": [{"name": "a", "count": 1.5}]},
        {"items": [{"name": "a", "count": 1.0}]},
        {"items": [{"name": 1, "count": 1}]},
        {"items": [{"count": 1}]},
        {"items": {}},
        {"items": [], "other": 1},
        {"items": [], "currency": "dollar"},
        {},
        [],
    ]:
        status, reply = call(server, QUOTE, value)
        assert accepts(parameters, value) == (status != 400), (value, status)
        assert accepts(schema_of(quote["responses"][str(status)]) if status != 400 else {}, reply), (value, reply)
    echo = document["paths"]["/orders/echo"]["post"]
    for nested, outcome, ratio in [(None, {"ok": 1}, 1.5), ({"some": 1}, {"err": "x"}, "Infinity"), ({"some": None}, {"ok": 0}, -1)]:
        value = {
            "bytes": "", "letter": "x", "ratio": ratio, "large": "-9223372036854775808", "wishes": [],
            "pair": ["x", True], "nested": nested, "outcome": outcome,
        }  # fmt: skip
        status, reply = call(server, "/app/orders/echo", value)
        assert status == 200 and accepts(schema_of(echo["requestBody"]), value)
        assert accepts(schema_of(echo["responses"]["200"]), reply), reply
