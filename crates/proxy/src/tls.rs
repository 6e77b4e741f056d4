//! TLS to the upstreams of a group: whom it trusts, and by which certificate upstreams recognize this server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_config::Proxy;
use dunlin_tls::{ClientConfig, Trust, client_config_with};
use sha2::{Digest, Sha256};

/// A configuration of TLS; or why there is none.
pub(crate) type Outcome = Result<Arc<ClientConfig>, String>;

/// The files of TLS as they were when they were read.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// A digest of their content; `None` if they could not be read.
    content: Mutex<Option<[u8; 32]>>,
}

impl Files {
    /// Reads the files, if they have changed since they were last read without an error; `None` if they have not.
    pub(crate) fn read(&self, rules: &Proxy) -> Option<Outcome> {
        let content = digest(rules.tls_files());
        let mut last = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if content.is_some() && *last == content {
            return None;
        }
        let pair = rules.client_certificate.as_ref();
        let pair = pair.map(|(certificate, key)| (&**certificate, &**key));
        let trust = match rules.authority.as_deref() {
            _ if !rules.verify => Trust::Any,
            Some(file) => Trust::File(file),
            None => Trust::System,
        };
        let read = client_config_with(trust, pair);
        *last = content.filter(|_| read.is_ok());
        Some(read)
    }
}

fn digest<'a>(files: impl Iterator<Item = &'a PathBuf>) -> Option<[u8; 32]> {
    let mut digest = Sha256::new();
    for file in files {
        let content = std::fs::read(file).ok()?;
        digest.update((content.len() as u64).to_le_bytes());
        digest.update(content);
    }
    Some(digest.finalize().into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::testing::rules;

    fn write(folder: &Path) {
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        fs::write(folder.join("a.pem"), made.cert.pem()).unwrap();
        fs::write(folder.join("a.key"), made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn files_are_read_when_they_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let file = |name| folder.path().join(name).display().to_string();
        let (certificate, key) = (file("a.pem"), file("a.key"));
        let rules = rules(&format!(
            "to = 'https://a.test', authority = '{certificate}', \
             client_certificate = {{ certificate = '{certificate}', key = '{key}' }}"
        ));
        let files = Files::default();
        assert!(files.read(&rules).unwrap().is_ok());
        assert!(files.read(&rules).is_none());
        fs::write(&key, "none").unwrap();
        assert!(files.read(&rules).unwrap().unwrap_err().contains("a.key"));
        write(folder.path());
        assert!(files.read(&rules).unwrap().is_ok());
    }
}
