//! An order of a certificate: account, challenges, certificate.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use dunlin_config::{Acme, AcmeChallenge};
use instant_acme::{
    Account, AccountCredentials, AuthorizationHandle, AuthorizationStatus, ChallengeHandle,
    ChallengeType, Error, ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use super::advice;
use super::challenges::{Challenges, Published};
use super::client::Client;
use super::files::replace;
use super::storage::{SharedChallenge, Storage};
use crate::certificate;

/// A failed order.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: String,
    /// The authority was not reached, or it failed: the order itself may be correct.
    pub(crate) unreachable: bool,
}

/// The time limit of each step.
const RETRY: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(200)).timeout(Duration::from_secs(120));

/// Obtains a certificate for all names, and writes it and its key into their file.
///
/// # Errors
/// When it cannot be obtained or written; the file is unchanged then.
pub(crate) async fn obtain(
    acme: &Acme,
    kind: AcmeChallenge,
    challenges: &Arc<Challenges>,
    storage: &Storage,
) -> Result<(), Failure> {
    let client = Client::new(acme.authority.as_deref())?;
    let create = async || account(acme, &client).await.map(drop).map_err(Failure::from);
    storage.account(acme, false, create).await?;
    let mut order = match order(acme, &client).await {
        Err(Error::Api(problem)) if is_unknown_account(&problem) => {
            // The authority has deleted it, or was set up again.
            let replace = async || {
                std::fs::remove_file(acme.account()).map_err(|error| error.to_string())?;
                create().await
            };
            storage.account(acme, true, replace).await?;
            order(acme, &client).await?
        }
        order => order?,
    };
    let published = publish(&mut order, kind, challenges, storage).await?;
    let ready = order.poll_ready(&RETRY).await;
    if !matches!(ready, Ok(OrderStatus::Ready)) {
        if let Some(reason) = rejection(&mut order).await {
            return Err(reason.into());
        }
        return Err(match ready {
            Ok(status) => format!("the order is {}", word(&status)).into(),
            Err(error) => error.into(),
        });
    }
    drop(published);
    let failed = |error: rcgen::Error| Failure::from(error.to_string());
    let key = KeyPair::generate().map_err(failed)?;
    let mut parameters = CertificateParams::new(acme.names.clone()).map_err(failed)?;
    parameters.distinguished_name = DistinguishedName::new();
    let request = parameters.serialize_request(&key).map_err(failed)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&RETRY).await?;
    let text = format!("{}{chain}", key.serialize_pem());
    replace(&acme.file(), text.as_bytes(), |file| certificate::check_pair(file, file))
        .map_err(|error| format!("{}: {error}", acme.file().display()).into())
}

async fn order(acme: &Acme, client: &Client) -> Result<Order, Error> {
    let account = account(acme, client).await?;
    let names: Vec<_> = acme.names.iter().cloned().map(Identifier::Dns).collect();
    // Authorities lift limits for orders that name the certificate that they replace (RFC 9773 §5).
    if let Some(identifier) = advice::identifier(&acme.file()) {
        match account.new_order(&NewOrder::new(&names).replaces(identifier)).await {
            // The authority does not support the field, or does not know the certificate.
            Err(error) if !is_final(&error) => {
                tracing::debug!("ACME: an order that names the replaced certificate: {error}");
            }
            order => return order,
        }
    }
    account.new_order(&NewOrder::new(&names)).await
}

/// Returns `true` if the same order fails also without the replaced certificate.
fn is_final(error: &Error) -> bool {
    match error {
        // The authority was not reached.
        Error::Other(_) => true,
        Error::Api(problem) => {
            let kind = problem.r#type.as_deref().unwrap_or_default();
            is_unknown_account(problem) || kind.ends_with(":rateLimited")
        }
        _ => false,
    }
}

/// Returns the stored account, or a new one.
pub(crate) async fn account(acme: &Acme, client: &Client) -> Result<Account, Error> {
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let file = acme.account();
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
            let external = acme.external.as_ref().map(|external| {
                let key =
                    read_external_key(&external.key).map_err(|error| Error::Other(error.into()));
                Ok::<_, Error>(ExternalAccountKey::new(external.id.clone(), &key?))
            });
            let external = external.transpose()?;
            let (account, credentials) =
                builder.create(&new, acme.directory.clone(), external.as_ref()).await?;
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

fn is_unknown_account(problem: &instant_acme::Problem) -> bool {
    problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":accountDoesNotExist"))
}

/// Publishes the responses to the challenges of all names that are not yet authorized, and then notifies the authority.
async fn publish(
    order: &mut Order,
    kind: AcmeChallenge,
    challenges: &Arc<Challenges>,
    storage: &Storage,
) -> Result<Vec<Published>, Failure> {
    let (mut published, mut shared) = (Vec::new(), Vec::new());
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => return Err(format!("the authorization is {}", word(&status)).into()),
        }
        let challenge = response(&challenge(&mut authorization, kind)?, kind)?;
        published.push(challenges.publish(&challenge)?);
        shared.push(challenge);
    }
    // The authority may connect to any of the servers, and gets the same response from each.
    storage.challenge(shared).await?;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Pending {
            challenge(&mut authorization, kind)?.set_ready().await?;
        }
    }
    Ok(published)
}

/// Returns the challenge of that kind.
fn challenge<'a>(
    authorization: &'a mut AuthorizationHandle<'a>,
    kind: AcmeChallenge,
) -> Result<ChallengeHandle<'a>, Failure> {
    let (wanted, name) = match kind {
        AcmeChallenge::TlsAlpn01 => (ChallengeType::TlsAlpn01, "TLS-ALPN-01"),
        AcmeChallenge::Http01 => (ChallengeType::Http01, "HTTP-01"),
    };
    let found = authorization.challenge(wanted);
    found.ok_or_else(|| format!("the authority does not offer {name}").into())
}

/// Returns the response to a challenge.
fn response(
    challenge: &ChallengeHandle<'_>,
    kind: AcmeChallenge,
) -> Result<SharedChallenge, Failure> {
    let response = challenge.key_authorization();
    match kind {
        AcmeChallenge::Http01 => Ok(SharedChallenge::Http {
            token: challenge.token.clone(),
            response: response.as_str().to_owned(),
        }),
        AcmeChallenge::TlsAlpn01 => {
            let digest = response.digest();
            let digest = digest.as_ref().try_into();
            let digest = digest.map_err(|_| "the digest has not the length of SHA-256")?;
            Ok(SharedChallenge::Tls { name: challenge.identifier().to_string(), digest })
        }
    }
}

/// Returns the word of RFC 8555 §7.1.6 for the status of an order or an authorization.
fn word(status: &impl std::fmt::Debug) -> String {
    format!("{status:?}").to_ascii_lowercase()
}

/// Returns why the authority rejected a challenge, in its words.
async fn rejection(order: &mut Order) -> Option<String> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        let name = state.identifier().to_string();
        if let Some(problem) = state.challenges.iter().find_map(|one| one.error.as_ref()) {
            return Some(format!("{name}: {problem}"));
        }
    }
    None
}

impl From<String> for Failure {
    fn from(error: String) -> Self {
        Self { error, unreachable: false }
    }
}

impl From<&str> for Failure {
    fn from(error: &str) -> Self {
        error.to_owned().into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let unreachable = match &error {
            Error::Api(problem) => problem.status.is_some_and(|status| status >= 500),
            _ => true,
        };
        Self { error: error.to_string(), unreachable }
    }
}
