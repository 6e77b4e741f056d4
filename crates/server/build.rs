//! Builds the library that keeps programs warm; the server carries it along.

use std::env;
use std::path::PathBuf;

fn main() {
    let source = "../../scripting/warm/preload.c";
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-changed=build.rs");
    let Some(folder) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        panic!("cargo says where to build");
    };
    let library = folder.join("warm-preload.so");
    let compiler = cc::Build::new().cargo_metadata(false).opt_level(2).get_compiler();
    let status = compiler
        .to_command()
        .args(["-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-s", "-o"])
        .arg(&library)
        .arg(source)
        .status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("a C compiler is needed to build the server: {other:?}"),
    }
}
