#![no_main]
//! The configuration: reading any text does not panic, and an accepted configuration can be used.

use std::path::Path;

use dunlin_config::{Config, Overrides, explain};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str, &[u8])| {
    let (text, url, host) = input;
    let file = Path::new("/fuzz/dunlin.toml");
    match Config::parse(text, file, &Overrides::default()) {
        Ok(config) => {
            let _ = explain(&config, file, url);
            if let Some(site) = config.sites.find(host) {
                let _ = site.route(url.as_bytes());
            }
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|problem| !problem.to_string().contains('\n')));
        }
    }
});
