//! The functions that a component exports.

use std::collections::BTreeMap;
use std::fmt;

use wasmtime::Engine;
use wasmtime::component::types::{ComponentFunc, ComponentInstance, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex, Val};

use crate::decode::{self, Invalid};
use crate::encode::{self, Encoded};
use crate::openapi::{self, Operation};
use crate::types::{Converter, Record, Type};

/// The functions that a component exports, by interface and name.
pub struct Interfaces {
    /// By full name.
    interfaces: BTreeMap<String, Interface>,
    /// Full names by the names that requests may use.
    aliases: BTreeMap<String, String>,
}

/// An exported interface.
struct Interface {
    /// The name in paths.
    path: String,
    functions: BTreeMap<String, Function>,
}

/// A function that can be called with JSON.
pub struct Function {
    parameters: Record,
    result: Option<Type>,
    index: ComponentExportIndex,
}

/// An exported function that cannot be called with JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The function as `interface/function`.
    pub function: String,
    /// Why, with the parameter.
    pub reason: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "function \"{}\" cannot be called with JSON: {}", self.function, self.reason)
    }
}

impl std::error::Error for Unsupported {}

impl Interfaces {
    /// Returns the functions that `component` exports in interfaces and by itself. It exports none if
    /// [`Interfaces::is_empty`].
    ///
    /// # Errors
    ///
    /// A function has resources, streams, futures or error contexts, or types of excessive depth or number.
    pub fn new(engine: &Engine, component: &Component) -> Result<Self, Unsupported> {
        let mut interfaces = BTreeMap::new();
        let mut own = Exports {
            component,
            converter: Converter::new(engine, None),
            interface: "",
            index: None,
        };
        let mut own_functions = BTreeMap::new();
        for (name, item) in component.component_type().exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(function) => {
                    own.add(&mut own_functions, name, &function)?;
                }
                ComponentItem::ComponentInstance(instance) => {
                    let functions = instance_functions(engine, component, name, &instance)?;
                    if !functions.is_empty() {
                        interfaces.insert(
                            name.to_owned(),
                            Interface { path: name.to_owned(), functions },
                        );
                    }
                }
                _ => {}
            }
        }
        if !own_functions.is_empty() {
            interfaces
                .insert(String::new(), Interface { path: String::new(), functions: own_functions });
        }
        let aliases = aliases(interfaces.keys());
        for (full, interface) in &mut interfaces {
            if aliases.get(short(full)) == Some(full) {
                short(full).clone_into(&mut interface.path);
            }
        }
        Ok(Self { interfaces, aliases })
    }

    /// Returns `true` if the component exports no function.
    pub fn is_empty(&self) -> bool {
        self.interfaces.is_empty()
    }

    /// Returns the function. `interface` is the full name, `example:orders/quotes@1.0.0`, or one without the version, or
    /// `quotes` alone, if no other exported interface has that name; it is empty for functions that the component exports by
    /// itself.
    pub fn find(&self, interface: &str, function: &str) -> Option<&Function> {
        self.interfaces.get(self.aliases.get(interface)?)?.functions.get(function)
    }

    /// Returns an OpenAPI 3.1 document of all functions, as JSON. `title` names the component, `base` is the URL path in
    /// front of `/interface/function`.
    pub fn openapi(&self, title: &str, base: &str) -> Vec<u8> {
        let operations = self.interfaces.values().flat_map(|interface| {
            interface.functions.iter().map(|(name, function)| Operation {
                interface: &interface.path,
                name,
                parameters: &function.parameters,
                result: function.result.as_ref(),
            })
        });
        let version = self.interfaces.keys().find_map(|full| full.split_once('@'));
        let version = version.map_or("0.0.0", |(_, version)| version);
        openapi::document(operations, (title, version), base).to_string().into_bytes()
    }
}

impl Function {
    /// Returns the parameters of a call, from an object with a member for each. Without parameters, or if all of them are
    /// options, the text may be empty.
    ///
    /// # Errors
    ///
    /// The text is not valid JSON, or does not match the types.
    pub fn decode(&self, json: &[u8]) -> Result<Vec<Val>, Invalid> {
        decode::parameters(&self.parameters, json)
    }

    /// Returns how many results a call returns: 0 or 1.
    pub fn result_count(&self) -> usize {
        usize::from(self.result.is_some())
    }

    /// Returns the results of a call as JSON.
    pub fn encode(&self, results: &[Val]) -> Encoded {
        encode::result(self.result.as_ref(), results)
    }

    /// Returns the export of the component that the function is.
    pub fn export_index(&self) -> &ComponentExportIndex {
        &self.index
    }
}

/// The places of the functions of one interface.
struct Exports<'a> {
    component: &'a Component,
    converter: Converter,
    interface: &'a str,
    index: Option<ComponentExportIndex>,
}

fn instance_functions(
    engine: &Engine,
    component: &Component,
    interface: &str,
    instance: &ComponentInstance,
) -> Result<BTreeMap<String, Function>, Unsupported> {
    let index = component.get_export_index(None, interface);
    let mut exports =
        Exports { component, converter: Converter::new(engine, Some(instance)), interface, index };
    let mut functions = BTreeMap::new();
    for (name, item) in instance.exports(engine) {
        if let ComponentItem::ComponentFunc(function) = item.ty {
            exports.add(&mut functions, name, &function)?;
        }
    }
    Ok(functions)
}

impl Exports<'_> {
    fn add(
        &mut self,
        functions: &mut BTreeMap<String, Function>,
        name: &str,
        function: &ComponentFunc,
    ) -> Result<(), Unsupported> {
        let converted = self.function(name, function).map_err(|reason| {
            let function = if self.interface.is_empty() {
                name.to_owned()
            } else {
                format!("{}/{name}", self.interface)
            };
            Unsupported { function, reason }
        })?;
        functions.insert(name.to_owned(), converted);
        Ok(())
    }

    fn function(&mut self, name: &str, function: &ComponentFunc) -> Result<Function, String> {
        self.converter.begin();
        let mut parameters = Vec::new();
        for (parameter, ty) in function.params() {
            let ty = self
                .converter
                .convert(&ty, 0)
                .map_err(|reason| format!("parameter \"{parameter}\": {reason}"))?;
            parameters.push((parameter.to_owned(), ty));
        }
        let result = function.results().next().map(|ty| self.converter.convert(&ty, 0)).transpose();
        let index = self.component.get_export_index(self.index.as_ref(), name);
        Ok(Function {
            parameters: Record::new(None, parameters),
            result: result.map_err(|reason| format!("result: {reason}"))?,
            index: index.ok_or("the engine does not find it")?,
        })
    }
}

/// `quotes` of `example:orders/quotes@1.0.0`.
fn short(full: &str) -> &str {
    let name = without_version(full);
    name.rsplit_once('/').map_or(name, |(_, name)| name)
}

fn without_version(full: &str) -> &str {
    full.split_once('@').map_or(full, |(name, _)| name)
}

/// Returns the names by which requests may name interfaces. A short name that several have is none.
fn aliases<'a>(interfaces: impl Iterator<Item = &'a String> + Clone) -> BTreeMap<String, String> {
    let mut aliases: BTreeMap<String, String> =
        interfaces.clone().map(|full| (full.clone(), full.clone())).collect();
    for shorten in [without_version, short] {
        let mut shortened: BTreeMap<&str, Option<&String>> = BTreeMap::new();
        for full in interfaces.clone() {
            shortened.entry(shorten(full)).and_modify(|known| *known = None).or_insert(Some(full));
        }
        for (alias, full) in shortened {
            if let Some(full) = full {
                aliases.entry(alias.to_owned()).or_insert_with(|| full.clone());
            }
        }
    }
    aliases
}
