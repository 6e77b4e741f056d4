//! The account with an authority (RFC 8555 §7.3).

use std::path::Path;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use dunlin_config::{Acme, Authority};
use instant_acme::{Account, AccountCredentials, Error, ExternalAccountKey, NewAccount};

use super::client::Client;
use super::files::replace;

/// Returns the stored account, or a new one.
pub(super) async fn get_or_create(
    acme: &Acme,
    authority: &Authority,
    client: &Client,
) -> Result<Account, Error> {
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let file = authority.account();
    let failed =
        |error: std::io::Error| Error::Other(format!("{}: {error}", file.display()).into());
    match std::fs::read(&file) {
        Ok(text) => {
            // The message of the parser may have a part of the key.
            let credentials: AccountCredentials =
                serde_json::from_slice(&text).map_err(|error| {
                    let (file, line) = (file.display(), error.line());
                    Error::Other(format!("{file}: line {line}: it is not an ACME account").into())
                })?;
            builder.from_credentials(credentials).await
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let contact: Vec<&str> = acme.contact.as_deref().into_iter().collect();
            let new = NewAccount {
                contact: &contact,
                terms_of_service_agreed: true,
                only_return_existing: false,
            };
            let external = authority.external.as_ref().map(|external| {
                let key =
                    read_external_key(&external.key).map_err(|error| Error::Other(error.into()));
                Ok::<_, Error>(ExternalAccountKey::new(external.id.clone(), &key?))
            });
            let external = external.transpose()?;
            let (account, credentials) =
                builder.create(&new, authority.directory.clone(), external.as_ref()).await?;
            replace(&file, &serde_json::to_vec(&credentials)?, |_| Ok(())).map_err(failed)?;
            Ok(account)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Reads the key of an external account (RFC 8555 §7.3.4).
///
/// # Errors
/// When the file cannot be used; the message names it.
pub(crate) fn read_external_key(file: &Path) -> Result<Vec<u8>, String> {
    let wrong = |what: &str| format!("external_account key {}: {what}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
    let text = text.trim().trim_end_matches('=').replace('+', "-").replace('/', "_");
    match BASE64_URL_SAFE_NO_PAD.decode(text) {
        Ok(key) if !key.is_empty() => Ok(key),
        Ok(_) => Err(wrong("it is empty")),
        Err(_) => Err(wrong("it is not in base64url")),
    }
}
