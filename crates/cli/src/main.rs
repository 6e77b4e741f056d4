//! `dunlin`: one binary, one file per subcommand.

fn main() {}
