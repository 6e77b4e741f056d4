//! The operation as a component with typed calls, for `kind = "component"`: `cargo build --release --target wasm32-wasip2`. The
//! server decodes the request and encodes the result by the types in `wit/echo.wit`.

mod operation;

use exports::example::report::echo::{Guest, Reply};

wit_bindgen::generate!({ world: "linked-in", path: "wit" });

struct Component;

impl Guest for Component {
    fn echo(payload: String) -> Reply {
        let operation::Reply { start, stop, payload } = operation::echo(|| payload);
        Reply { start, stop, payload }
    }
}

export!(Component);
