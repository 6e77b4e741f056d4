//! Builds the libraries that scripts' processes load; the server carries them along.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    library("../../scripting/warm/preload.c", "warm-preload.so");
    library("../../scripting/wsgi/fast.c", "wsgi-fast.so");
}

fn library(source: &str, name: &str) {
    println!("cargo::rerun-if-changed={source}");
    let Some(folder) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        panic!("cargo says where to build");
    };
    let compiler = cc::Build::new().cargo_metadata(false).opt_level(2).get_compiler();
    let status = compiler
        .to_command()
        .args(["-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-s", "-o"])
        .arg(folder.join(name))
        .arg(source)
        .status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("a C compiler is needed to build the server: {other:?}"),
    }
}
