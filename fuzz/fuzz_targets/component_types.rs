#![no_main]
//! Parameters of typed calls: any bytes are decoded, or reported with a bounded reason; what is decoded is encoded and decoded as the same.

use std::sync::LazyLock;

use dunlin_component_types::Interfaces;
use libfuzzer_sys::fuzz_target;
use wasmtime::Engine;
use wasmtime::component::Component;

/// A component with a function whose parameter and result have every type.
static INTERFACES: LazyLock<Interfaces> = LazyLock::new(|| {
    let engine = Engine::default();
    let text = include_str!("../../crates/component-types/tests/quotes.wat");
    let component = Component::new(&engine, wat::parse_str(text).expect("text of a component")).expect("a component");
    Interfaces::new(&engine, &component).expect("supported functions")
});

fuzz_target!(|json: &[u8]| {
    for name in ["same", "check", "nothing"] {
        let function = INTERFACES.find("quotes", name).expect("a function");
        match function.decode(json) {
            Ok(values) if name == "same" => {
                let encoded = function.encode(&values).json;
                let again = [b"{\"value\":", encoded.as_slice(), b"}"].concat();
                assert_eq!(function.decode(&again).expect("what was encoded"), values);
            }
            Ok(_) => {}
            Err(invalid) => assert!(invalid.reason.len() < 400),
        }
    }
});
