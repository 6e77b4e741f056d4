//! The configuration: one TOML file, its types, its errors, its schema.
