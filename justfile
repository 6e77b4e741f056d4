# Shortcuts; `./test` is what counts.

default:
    @just --list

serve:
    cargo run --release -- serve --config demo/dunlin.toml

test *arguments:
    ./test {{arguments}}

figures *rows="keepalive-1k":
    cargo build --profile dist --all-features -p dunlin -p baseline
    benches/figures.py {{rows}}

# Writes the pages of the book that are generated from the code.
reference:
    cargo build --workspace --all-features --profile checked --bin dunlin
    docs/generated.py

book:
    mdbook serve docs

# Build packages into target/packages, such as `just package deb`.
package *parts:
    packaging/build.sh {{parts}}
