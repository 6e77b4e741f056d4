//! The OpenAPI 3.1 document of a component.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::schema::Schemas;
use crate::types::{Record, Type};

/// A function, as the document describes it.
pub(crate) struct Operation<'a> {
    /// The name of the interface in paths; empty for a function that the component exports by itself.
    pub(crate) interface: &'a str,
    pub(crate) name: &'a str,
    pub(crate) parameters: &'a Record,
    pub(crate) result: Option<&'a Type>,
}

/// Returns the document of all functions. `base` precedes their paths.
pub(crate) fn document<'a>(
    operations: impl Iterator<Item = Operation<'a>>,
    (title, version): (&str, &str),
    base: &str,
) -> Value {
    let mut schemas = BTreeMap::new();
    let mut paths = Map::new();
    for operation in operations {
        let (path, id) = match operation {
            Operation { interface: "", name, .. } => (format!("/{name}"), name.to_owned()),
            Operation { interface, name, .. } => {
                (format!("/{interface}/{name}"), format!("{interface}.{name}"))
            }
        };
        let mut schemas = Schemas::new(operation.interface, &mut schemas);
        paths.insert(path, json!({ "post": describe(&mut schemas, &id, &operation) }));
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": title, "version": version },
        "servers": [{ "url": if base.is_empty() { "/" } else { base } }],
        "paths": paths,
        "components": { "schemas": schemas, "responses": { "invalid": invalid() } },
    })
}

fn describe(schemas: &mut Schemas<'_>, id: &str, operation: &Operation<'_>) -> Value {
    let mut described = Map::new();
    described.insert("operationId".to_owned(), json!(id));
    if !operation.interface.is_empty() {
        described.insert("tags".to_owned(), json!([operation.interface]));
    }
    if !operation.parameters.fields.is_empty() {
        let required = operation.parameters.required().next().is_some();
        let schema = schemas.object(operation.parameters);
        described.insert(
            "requestBody".to_owned(),
            json!({ "required": required, "content": content(schema) }),
        );
    }
    described.insert("responses".to_owned(), responses(schemas, operation.result));
    Value::Object(described)
}

fn responses(schemas: &mut Schemas<'_>, result: Option<&Type>) -> Value {
    let mut responses = Map::new();
    let value = match result {
        Some(Type::Result(contents)) => {
            let schema = schemas.content(contents[1].as_ref());
            responses.insert(
                "422".to_owned(),
                json!({ "description": "The error", "content": content(schema) }),
            );
            contents[0].as_ref()
        }
        other => other,
    };
    match value {
        Some(ty) => {
            let schema = schemas.of(ty);
            responses.insert(
                "200".to_owned(),
                json!({ "description": "The result", "content": content(schema) }),
            );
        }
        None => {
            responses.insert("204".to_owned(), json!({ "description": "No result" }));
        }
    }
    responses.insert("400".to_owned(), json!({ "$ref": "#/components/responses/invalid" }));
    Value::Object(responses)
}

fn content(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// Returns the response to parameters that do not fit, as `Invalid::problem` writes it.
fn invalid() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "title": { "type": "string" },
            "status": { "const": 400 },
            "detail": { "type": "string", "description": "What is expected and what was found" },
            "pointer": { "type": "string", "description": "Where, as JSON Pointer (RFC 6901)" },
        },
        "required": ["title", "status", "detail", "pointer"],
    });
    json!({ "description": "The parameters do not fit", "content": { "application/problem+json": { "schema": schema } } })
}
