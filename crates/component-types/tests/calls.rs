//! Calls of a component with JSON, from its exports to the JSON of its results.

use dunlin_component_types::{Encoded, Function, Interfaces, Status};
use wasmtime::component::{Component, Linker, Val};
use wasmtime::{Config, Engine, Store};

const QUOTES: &str = include_str!("quotes.wat");

/// A value of every type, with fields in the order in which they are encoded.
const EVERYTHING: &str = concat!(
    r#"{"flag":true,"tiny":-128,"byte":255,"small":-32768,"port":65535,"medium":-2147483648,"count":4294967295,"#,
    r#""large":"-9223372036854775808","huge":"18446744073709551615","ratio":0.1,"exact":"NaN","letter":"ß","#,
    r#""text":"a \"quoted\" word","bytes":"AP/+","numbers":[1,2],"color":"light-green","rights":["read","run"],"#,
    r#""shapes":["none",{"circle":1.5},{"line":[-1,1]}],"maybe":"x","twice":{"some":null},"outcome":{"err":"no"}}"#,
);

struct Loaded {
    engine: Engine,
    component: Component,
    interfaces: Interfaces,
}

fn load(text: &str) -> Loaded {
    let engine = Engine::new(&Config::new()).expect("an engine");
    let component = Component::new(&engine, wat::parse_str(text).expect("text of a component"))
        .expect("a component");
    let interfaces = Interfaces::new(&engine, &component).expect("supported functions");
    Loaded { engine, component, interfaces }
}

impl Loaded {
    fn function(&self, name: &str) -> &Function {
        self.interfaces.find("quotes", name).expect("a function")
    }

    fn call(&self, name: &str, json: &str) -> (Status, String) {
        let function = self.function(name);
        let parameters = function.decode(json.as_bytes()).expect("valid parameters");
        let mut store = Store::new(&self.engine, ());
        let instance = Linker::new(&self.engine)
            .instantiate(&mut store, &self.component)
            .expect("an instance");
        let exported =
            instance.get_func(&mut store, function.export_index()).expect("the function");
        let mut results = vec![Val::Bool(false); function.result_count()];
        exported.call(&mut store, &parameters, &mut results).expect("a call");
        let Encoded { status, json } = function.encode(&results);
        (status, String::from_utf8(json).expect("UTF-8"))
    }

    fn error(&self, name: &str, json: &str) -> String {
        self.function(name).decode(json.as_bytes()).expect_err("invalid parameters").to_string()
    }
}

#[test]
fn a_value_of_every_type_passes_through_a_component() {
    let loaded = load(QUOTES);
    let json = format!("{{\"value\":{EVERYTHING}}}");
    assert_eq!(loaded.call("same", &json), (Status::Ok, EVERYTHING.to_owned()));
}

#[test]
fn results_have_a_status() {
    let loaded = load(QUOTES);
    assert_eq!(loaded.call("check", r#"{"number": 5}"#), (Status::Ok, "5".to_owned()));
    assert_eq!(loaded.call("check", r#"{"number": -5}"#), (Status::Err, "\"negative\"".to_owned()));
    assert_eq!(loaded.call("nothing", ""), (Status::Empty, String::new()));
    assert_eq!(loaded.call("nothing", "{}"), (Status::Empty, String::new()));
}

#[test]
fn integers_and_floats_are_accepted_in_all_their_forms() {
    let loaded = load(QUOTES);
    for (given, expected) in [
        (r#""huge":"18446744073709551615""#, r#""huge":9007199254740992"#),
        (r#""ratio":0.1"#, r#""ratio":"-Infinity""#),
        (r#""exact":"NaN""#, r#""exact":1e+300"#),
        (r#""twice":{"some":null}"#, r#""twice":{"some":7}"#),
        (r#""twice":{"some":null}"#, r#""twice":null"#),
        (r#""outcome":{"err":"no"}"#, r#""outcome":{"ok":1}"#),
    ] {
        let changed = EVERYTHING.replace(given, expected);
        assert_ne!(changed, EVERYTHING);
        assert_eq!(loaded.call("same", &format!("{{\"value\":{changed}}}")), (Status::Ok, changed));
    }
    assert_eq!(loaded.call("check", r#"{"number": 1e3}"#).1, "1000");
    // Absent options are null.
    let changed = EVERYTHING.replace(r#""maybe":"x","#, "");
    let (_, json) = loaded.call("same", &format!("{{\"value\":{changed}}}"));
    assert_eq!(json, EVERYTHING.replace(r#""maybe":"x""#, r#""maybe":null"#));
}

#[test]
fn functions_are_found_by_all_names_of_their_interface() {
    let loaded = load(QUOTES);
    for interface in ["quotes", "example:orders/quotes", "example:orders/quotes@1.2.0"] {
        assert!(loaded.interfaces.find(interface, "same").is_some(), "{interface}");
    }
    for (interface, function) in
        [("quotes", "other"), ("orders/quotes", "same"), ("", "same"), ("quotes@1.2.0", "same")]
    {
        assert!(loaded.interfaces.find(interface, function).is_none(), "{interface}/{function}");
    }
}

#[test]
fn errors_have_the_place_and_what_is_expected() {
    let loaded = load(QUOTES);
    let everything = |from: &str, to: &str| {
        let changed = EVERYTHING.replace(from, to);
        assert_ne!(changed, EVERYTHING);
        loaded.error("same", &format!("{{\"value\":{changed}}}"))
    };
    for (from, to, error) in [
        ("255", "256", "/value/byte: expected an integer from 0 to 255, found 256"),
        ("255", "-1", "/value/byte: expected an integer from 0 to 255, found -1"),
        ("255", "1.5", "/value/byte: expected an integer from 0 to 255, found 1.5"),
        (
            "\"ß\"",
            "\"ab\"",
            "/value/letter: expected a string of one character, found the string \"ab\"",
        ),
        ("[1,2]", "[1,true]", "/value/numbers/1: expected an integer from 0 to 65535, found true"),
        (
            "light-green",
            "blue",
            "/value/color: expected one of \"red\", \"light-green\", found the string \"blue\"",
        ),
        (
            "\"run\"]",
            "\"fly\"]",
            "/value/rights/1: expected an array of \"read\", \"write\", \"run\", found \"fly\"",
        ),
        (
            "[-1,1]",
            "[1]",
            "/value/shapes/2/line: expected an array of length 2, found one of length 1",
        ),
        (
            "[-1,1]",
            "[1,2,3]",
            "/value/shapes/2/line: expected an array of length 2, found a longer one",
        ),
        (
            "\"none\"",
            "\"circle\"",
            "/value/shapes/0: expected one of \"none\", {\"circle\": ...}, {\"line\": ...}, found the string \"circle\"",
        ),
        (
            "{\"circle\":1.5}",
            "{\"circle\":1,\"line\":2}",
            "/value/shapes/1: expected one member, found \"line\" as well",
        ),
        ("AP/+", "AP/", "/value/bytes: invalid Base64: Invalid last symbol"),
        ("\"port\":65535,", "", "/value/port: the field is missing"),
        ("\"port\"", "\"tiny\"", "/value/tiny: the field occurs twice"),
        ("{\"some\":null}", "7", "/value/twice: expected {\"some\": ...} or null, found 7"),
    ] {
        let found = everything(from, to);
        assert!(found.starts_with(error), "{found}");
    }
    assert_eq!(
        loaded.error("check", r#"{"number": 1, "no/such": 2}"#),
        "expected \"number\", found the unknown field \"no/such\""
    );
    assert_eq!(
        loaded.error("check", r#"{"number": "1"}"#),
        "/number: expected an integer from -2147483648 to 2147483647, found the string \"1\""
    );
    assert_eq!(loaded.error("check", ""), "/number: the field is missing");
    assert_eq!(loaded.error("check", "[]"), "invalid type: sequence, expected an object");
    assert_eq!(loaded.error("check", "{\"number\":\n1]"), "expected `,` or `}` at line 2 column 2");
    assert_eq!(
        loaded.error("check", r#"{"number": 1} x"#),
        "trailing characters at line 1 column 15"
    );
    assert_eq!(
        loaded.error("nothing", r#"{"a": 1}"#),
        "the field \"a\" is unknown; there are none"
    );
}

#[test]
fn a_reason_is_no_longer_than_a_line_however_long_the_value_is() {
    let loaded = load(QUOTES);
    let invalid = loaded
        .function("check")
        .decode(format!("{{\"number\":\"{}\"}}", "ß".repeat(100_000)).as_bytes());
    let invalid = invalid.expect_err("a string");
    assert!(invalid.reason.len() < 400, "{}", invalid.reason.len());
    let problem: serde_json::Value = serde_json::from_slice(&invalid.problem()).expect("JSON");
    assert_eq!((&problem["pointer"], &problem["status"]), (&"/number".into(), &400.into()));
}

/// Returns a component that exports the function `g` by itself. `signature` is that of the component, `core` that of its
/// code.
fn component(types: &str, signature: &str, core: &str) -> String {
    format!(
        r#"(component
          (core module $module
            (memory (export "memory") 1)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
            (func (export "g") {core}))
          (core instance $core (instantiate $module))
          {types}
          (func (export "g") {signature}
            (canon lift (core func $core "g") (memory (core memory $core "memory")) (realloc (core func $core "realloc")))))"#
    )
}

#[test]
fn a_short_text_cannot_make_many_values() {
    let fields: String = (0..200).map(|at| format!("(field \"f{at}\" (option u8))")).collect();
    let types =
        format!("(type $wide' (record {fields})) (import \"wide\" (type $wide (eq $wide')))");
    let loaded = load(&component(&types, "(param \"values\" (list $wide))", "(param i32 i32)"));
    let function = loaded.interfaces.find("", "g").expect("a function");
    let text = |count: usize| format!("{{\"values\":[{}]}}", vec!["{}"; count].join(","));
    assert!(function.decode(text(50).as_bytes()).is_ok());
    let invalid = function.decode(text(10_000).as_bytes()).expect_err("2,000,000 values");
    assert!(invalid.reason.contains("more values"), "{invalid}");
}

#[test]
fn functions_without_a_form_in_json_are_reported_with_their_names() {
    let engine = Engine::new(Config::new().wasm_component_model_async(true)).expect("an engine");
    for (text, expected) in [
        (
            component(
                r#"(import "r" (type $r (sub resource)))"#,
                r#"(param "x" (own $r))"#,
                "(param i32)",
            ),
            r#"function "g" cannot be called with JSON: parameter "x": a resource has no form in JSON"#,
        ),
        (
            component("", "(result (stream u8))", "(result i32) i32.const 0"),
            r#"function "g" cannot be called with JSON: result: a stream has no form in JSON"#,
        ),
    ] {
        let component = Component::new(&engine, wat::parse_str(text).expect("text of a component"))
            .expect("a component");
        let unsupported = Interfaces::new(&engine, &component).err().expect("unsupported");
        assert_eq!(unsupported.to_string(), expected);
    }
}

#[test]
fn deeply_nested_types_are_reported() {
    let engine = Engine::new(&Config::new()).expect("an engine");
    let nested = |depth: usize| {
        let ty = format!("{}u32{}", "(list ".repeat(depth), ")".repeat(depth));
        let text = component("", &format!("(param \"x\" {ty})"), "(param i32 i32)");
        let component = Component::new(&engine, wat::parse_str(text).expect("text of a component"))
            .expect("a component");
        Interfaces::new(&engine, &component).err()
    };
    assert_eq!(nested(60), None);
    let reason = nested(70).expect("unsupported").reason;
    assert!(reason.contains("deeper than 64 levels"), "{reason}");
}

#[test]
fn the_document_has_paths_and_types_with_names() {
    let loaded = load(QUOTES);
    let document = loaded.interfaces.openapi("quotes.wasm", "/api");
    let document: serde_json::Value = serde_json::from_slice(&document).expect("JSON");
    assert_eq!(document["info"]["version"], "1.2.0");
    assert_eq!(document["servers"][0]["url"], "/api");
    let same = &document["paths"]["/quotes/same"]["post"];
    let schema =
        &same["requestBody"]["content"]["application/json"]["schema"]["properties"]["value"];
    assert_eq!(schema["$ref"], "#/components/schemas/quotes.everything");
    let everything = &document["components"]["schemas"]["quotes.everything"];
    assert_eq!(
        everything["properties"]["shapes"]["items"]["$ref"],
        "#/components/schemas/quotes.shape"
    );
    assert_eq!(everything["required"].as_array().map(Vec::len), Some(19));
    let check = &document["paths"]["/quotes/check"]["post"]["responses"];
    assert_eq!(check["422"]["content"]["application/json"]["schema"]["type"], "string");
    assert!(document["paths"]["/quotes/nothing"]["post"]["responses"]["204"].is_object());
}
