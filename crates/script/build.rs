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
    let mut build = cc::Build::new();
    build.cargo_metadata(false).opt_level(2);
    if let Some(target) = target_of_scripts() {
        build.target(&target);
    }
    let compiler = build.get_compiler();
    let status = compiler
        .to_command()
        .args(["-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-s", "-o"])
        .arg(folder.join(name))
        .arg(source)
        .status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("a C compiler is needed to build Dunlin: {other:?}"),
    }
}

/// Returns the system whose programs load the libraries, if it differs from the target: a static binary that is built with
/// musl on a system with glibc serves scripts of systems with glibc.
fn target_of_scripts() -> Option<String> {
    let (target, host) = (env::var("TARGET").ok()?, env::var("HOST").ok()?);
    let foreign = target.ends_with("-musl") && !host.ends_with("-musl");
    foreign.then(|| target.replace("-musl", "-gnu"))
}
