#![no_main]
//! The configuration: reading any text does not panic, and an accepted configuration can be used.

use std::path::Path;

use dunlin_config::{Config, Overrides, explain_settings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str, &[u8])| {
    let (text, path, host) = input;
    let file = Path::new("/fuzz/dunlin.toml");
    match Config::parse(text, file, &Overrides::default()) {
        Ok(config) => {
            if let Some(site) = config.sites.find(host) {
                let mut explanation = String::new();
                explain_settings(&config, file, site, path.as_bytes(), true, &mut explanation);
                assert!(!explanation.is_empty());
            }
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|problem| !problem.to_string().contains('\n')));
        }
    }
});
