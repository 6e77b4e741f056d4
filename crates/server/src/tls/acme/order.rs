//! One order: from the account to the certificate.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Error, ExternalAccountKey,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use super::advice;
use super::challenges::{Challenges, Shown};
use super::client::Client;
use super::files::replace;
use crate::config::{Acme, AcmeChallenge};
use crate::tls::certificate;

/// Why there is no certificate.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) what: String,
    /// The authority was not reached, or is not well: nothing is wrong on this side.
    pub(super) unreachable: bool,
}

/// How long the authority is waited for, at each step.
const PATIENCE: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(200)).timeout(Duration::from_secs(120));

/// Obtains a certificate for all names, and puts it and its key into their file.
///
/// # Errors
/// What went wrong; the file is as it was.
pub(super) async fn obtain(
    acme: &Acme,
    kind: AcmeChallenge,
    challenges: &Arc<Challenges>,
) -> Result<(), Failure> {
    let client = Client::new(acme.authority.as_deref())?;
    let mut order = match order(acme, &client).await {
        Err(Error::Api(problem)) if is_unknown_account(&problem) => {
            // The authority has forgotten it, or was set up anew.
            std::fs::remove_file(acme.account()).map_err(|error| error.to_string())?;
            order(acme, &client).await?
        }
        order => order?,
    };
    let shown = show(&mut order, kind, challenges).await?;
    let ready = order.poll_ready(&PATIENCE).await;
    if !matches!(ready, Ok(OrderStatus::Ready)) {
        if let Some(reason) = refusal(&mut order).await {
            return Err(reason.into());
        }
        return Err(match ready {
            Ok(status) => format!("the order is {status:?}").into(),
            Err(error) => error.into(),
        });
    }
    drop(shown);
    let made = |error: rcgen::Error| Failure::from(error.to_string());
    let key = KeyPair::generate().map_err(made)?;
    let mut parameters = CertificateParams::new(acme.names.clone()).map_err(made)?;
    parameters.distinguished_name = DistinguishedName::new();
    let request = parameters.serialize_request(&key).map_err(made)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&PATIENCE).await?;
    let text = format!("{}{chain}", key.serialize_pem());
    replace(&acme.file(), text.as_bytes(), certificate::check_pair)
        .map_err(|error| format!("{}: {error}", acme.file().display()).into())
}

async fn order(acme: &Acme, client: &Client) -> Result<Order, Error> {
    let account = account(acme, client).await?;
    let names: Vec<_> = acme.names.iter().cloned().map(Identifier::Dns).collect();
    // It is told which one it renews (RFC 9773 §5), for which authorities lift limits.
    if let Some(identifier) = advice::identifier(&acme.file()) {
        match account.new_order(&NewOrder::new(&names).replaces(identifier)).await {
            // Of an authority that wants to hear nothing of it, or of none that was there before.
            Err(error) if !is_final(&error) => {
                tracing::debug!("an order that says what it replaces: {error}");
            }
            order => return order,
        }
    }
    account.new_order(&NewOrder::new(&names)).await
}

/// Whether the same order without what it replaces would come to no more.
fn is_final(error: &Error) -> bool {
    match error {
        // It was not reached.
        Error::Other(_) => true,
        Error::Api(problem) => {
            let kind = problem.r#type.as_deref().unwrap_or_default();
            is_unknown_account(problem) || kind.ends_with(":rateLimited")
        }
        _ => false,
    }
}

/// The account that is kept, or a new one.
pub(super) async fn account(acme: &Acme, client: &Client) -> Result<Account, Error> {
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let file = acme.account();
    let told = |error: std::io::Error| Error::Other(format!("{}: {error}", file.display()).into());
    match std::fs::read(&file) {
        Ok(text) => {
            let credentials: AccountCredentials = serde_json::from_slice(&text)
                .map_err(|error| Error::Other(format!("{}: {error}", file.display()).into()))?;
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
            replace(&file, &serde_json::to_vec(&credentials)?, |_| Ok(())).map_err(told)?;
            Ok(account)
        }
        Err(error) => Err(told(error)),
    }
}

/// The key by which the authority knows somebody already (RFC 8555 §7.3.4).
///
/// # Errors
/// Why the file cannot be used.
pub(crate) fn read_external_key(file: &Path) -> Result<Vec<u8>, String> {
    let wrong = |what: &str| format!("external_account key {}: {what}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
    let text = text.trim().trim_end_matches('=').replace('+', "-").replace('/', "_");
    match BASE64_URL_SAFE_NO_PAD.decode(text) {
        Ok(key) if !key.is_empty() => Ok(key),
        Ok(_) => Err(wrong("it is empty")),
        Err(error) => Err(wrong(&format!("it is not in base64url: {error}"))),
    }
}

fn is_unknown_account(problem: &instant_acme::Problem) -> bool {
    problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":accountDoesNotExist"))
}

/// Begins to answer the challenge of every name that is not proven yet, and says so.
async fn show(
    order: &mut Order,
    kind: AcmeChallenge,
    challenges: &Arc<Challenges>,
) -> Result<Vec<Shown>, Failure> {
    let mut shown = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => return Err(format!("the authorization is {status:?}").into()),
        }
        let (wanted, name) = match kind {
            AcmeChallenge::TlsAlpn01 => (ChallengeType::TlsAlpn01, "TLS-ALPN-01"),
            AcmeChallenge::Http01 => (ChallengeType::Http01, "HTTP-01"),
        };
        let mut challenge = authorization
            .challenge(wanted)
            .ok_or_else(|| format!("the authority does not offer {name}"))?;
        let answer = challenge.key_authorization();
        shown.push(match kind {
            AcmeChallenge::Http01 => challenges.show_text(&challenge.token, answer.as_str()),
            AcmeChallenge::TlsAlpn01 => {
                let digest = answer.digest();
                let digest = digest.as_ref().try_into().map_err(|_| "a digest is not one")?;
                challenges.show_handshake(&challenge.identifier().to_string(), digest)?
            }
        });
        challenge.set_ready().await?;
    }
    Ok(shown)
}

/// Why the authority took no proof, in its words.
async fn refusal(order: &mut Order) -> Option<String> {
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
    fn from(what: String) -> Self {
        Self { what, unreachable: false }
    }
}

impl From<&str> for Failure {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let unreachable = match &error {
            Error::Api(problem) => problem.status.is_some_and(|status| status >= 500),
            _ => true,
        };
        Self { what: error.to_string(), unreachable }
    }
}
