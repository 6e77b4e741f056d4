//! An order of a certificate: account, challenges, certificate.

use std::sync::Arc;
use std::time::Duration;

use dunlin_config::{Acme, AcmeChallenge, Authority};
use instant_acme::{
    Account, AuthorizationHandle, AuthorizationStatus, ChallengeHandle, ChallengeType, Error,
    Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use super::account;
use super::advice;
use super::challenges::{Challenges, Published};
use super::client::Client;
use super::files::replace;
use super::records::Records;
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

/// Obtains a certificate for all names from the first authority that issues one, and writes it and its key into their file.
///
/// # Errors
/// When it cannot be obtained or written; the file is unchanged then.
pub(crate) async fn obtain(
    acme: &Acme,
    kind: AcmeChallenge,
    challenges: &Arc<Challenges>,
    storage: &Storage,
) -> Result<(), Failure> {
    let mut failures: Vec<(&str, Failure)> = Vec::new();
    for authority in &acme.authorities {
        let order = NewCertificate { acme, authority, kind, challenges, storage };
        match order.obtain().await {
            Ok(()) => return Ok(()),
            Err(failure) => failures.push((&authority.directory, failure)),
        }
        if let Some((directory, Failure { error, .. })) = failures.last()
            && failures.len() < acme.authorities.len()
        {
            tracing::warn!(directory, "ACME: the next authority is tried: {error}");
        }
    }
    Err(Failure::of_all(failures))
}

/// A certificate to be obtained from one authority.
struct NewCertificate<'a> {
    acme: &'a Acme,
    authority: &'a Authority,
    kind: AcmeChallenge,
    challenges: &'a Arc<Challenges>,
    storage: &'a Storage,
}

impl NewCertificate<'_> {
    async fn obtain(&self) -> Result<(), Failure> {
        let Self { acme, .. } = self;
        let mut order = self.order().await?;
        self.prove(&mut order).await?;
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

    /// Creates the order, with the stored account or a new one.
    async fn order(&self) -> Result<Order, Failure> {
        let Self { acme, authority, storage, .. } = self;
        let client = Client::new(authority.trusted.as_deref())?;
        let create = async || {
            account::get_or_create(acme, authority, &client).await.map(drop).map_err(Failure::from)
        };
        storage.account(authority, false, create).await?;
        match order(acme, authority, &client).await {
            Err(Error::Api(problem)) if is_unknown_account(&problem) => {
                // The authority has deleted it, or was set up again.
                let replace = async || {
                    std::fs::remove_file(authority.account()).map_err(|error| error.to_string())?;
                    create().await
                };
                storage.account(authority, true, replace).await?;
                Ok(order(acme, authority, &client).await?)
            }
            order => Ok(order?),
        }
    }

    /// Proves control of all names.
    async fn prove(&self, order: &mut Order) -> Result<(), Failure> {
        let Some(dns) = self.acme.dns.as_ref().filter(|_| self.kind == AcmeChallenge::Dns01) else {
            let published = self.publish(order).await?;
            self.ready(order).await?;
            drop(published);
            return Ok(());
        };
        let mut records = Records::new(dns);
        let proven = self.prove_by_records(order, &mut records).await;
        records.remove().await;
        proven
    }

    async fn prove_by_records(
        &self,
        order: &mut Order,
        records: &mut Records<'_>,
    ) -> Result<(), Failure> {
        // The authority has nothing to do with it.
        let local = |error: String| Failure { error, unreachable: true };
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if !is_pending(&authorization)? {
                continue;
            }
            let challenge = challenge(&mut authorization, self.kind)?;
            let Identifier::Dns(name) = challenge.identifier().identifier else {
                return Err(format!("{}: it is not a name", challenge.identifier()).into());
            };
            let value = challenge.key_authorization().dns_value();
            records.add(name, value).await.map_err(local)?;
        }
        records.propagate().await.map_err(local)?;
        self.ready(order).await
    }

    /// Publishes the responses to the challenges of all names that are not yet authorized.
    async fn publish(&self, order: &mut Order) -> Result<Vec<Published>, Failure> {
        let (mut published, mut shared) = (Vec::new(), Vec::new());
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if !is_pending(&authorization)? {
                continue;
            }
            let challenge = response(&challenge(&mut authorization, self.kind)?, self.kind)?;
            published.push(self.challenges.publish(&challenge)?);
            shared.push(challenge);
        }
        // The authority may connect to any of the servers, and gets the same response from each.
        self.storage.challenge(shared).await?;
        Ok(published)
    }

    /// Notifies the authority that the responses are published, and waits for its verdict.
    async fn ready(&self, order: &mut Order) -> Result<(), Failure> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Pending {
                challenge(&mut authorization, self.kind)?.set_ready().await?;
            }
        }
        let ready = order.poll_ready(&RETRY).await;
        if matches!(ready, Ok(OrderStatus::Ready)) {
            return Ok(());
        }
        if let Some(reason) = rejection(order).await {
            return Err(reason.into());
        }
        Err(match ready {
            Ok(status) => format!("the order is {}", word(&status)).into(),
            Err(error) => error.into(),
        })
    }
}

async fn order(acme: &Acme, authority: &Authority, client: &Client) -> Result<Order, Error> {
    let account = account::get_or_create(acme, authority, client).await?;
    check_profile(&account, authority)?;
    let names: Vec<_> = acme.names.iter().map(|name| identifier(name)).collect();
    let new = || {
        let new = NewOrder::new(&names);
        authority.profile.iter().fold(new, |new, profile| new.profile(profile))
    };
    // Authorities lift limits for orders that name the certificate that they replace (RFC 9773 §5).
    if let Some(identifier) = advice::identifier(&acme.file()) {
        match account.new_order(&new().replaces(identifier)).await {
            // The authority does not support the field, or does not know the certificate.
            Err(error) if !is_final(&error) => {
                tracing::debug!("ACME: an order that names the replaced certificate: {error}");
            }
            order => return order,
        }
    }
    account.new_order(&new()).await
}

/// Returns the identifier of a name, or of an address (RFC 8738).
fn identifier(name: &str) -> Identifier {
    match name.parse() {
        Ok(address) => Identifier::Ip(address),
        Err(_) => Identifier::Dns(name.to_owned()),
    }
}

/// Reports a profile that the authority does not have: it would ignore the profile, or reject the order without the names of others.
fn check_profile(account: &Account, authority: &Authority) -> Result<(), Error> {
    let Some(profile) = &authority.profile else { return Ok(()) };
    let mut names: Vec<_> = account.profiles().map(|profile| profile.name).collect();
    if names.contains(&profile.as_str()) {
        return Ok(());
    }
    names.sort_unstable();
    let others = match names.is_empty() {
        true => "it has none".to_owned(),
        false => format!("it has {}", names.join(", ")),
    };
    Err(Error::Other(format!("the authority has no profile {profile:?}; {others}").into()))
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

fn is_unknown_account(problem: &instant_acme::Problem) -> bool {
    problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":accountDoesNotExist"))
}

/// Returns `true` if the authorization needs a proof.
fn is_pending(authorization: &AuthorizationHandle<'_>) -> Result<bool, Failure> {
    match authorization.status {
        AuthorizationStatus::Valid => Ok(false),
        AuthorizationStatus::Pending => Ok(true),
        status => Err(format!("the authorization is {}", word(&status)).into()),
    }
}

/// Returns the challenge of that kind.
fn challenge<'a>(
    authorization: &'a mut AuthorizationHandle<'a>,
    kind: AcmeChallenge,
) -> Result<ChallengeHandle<'a>, Failure> {
    let (wanted, name) = match kind {
        AcmeChallenge::TlsAlpn01 => (ChallengeType::TlsAlpn01, "TLS-ALPN-01"),
        AcmeChallenge::Http01 => (ChallengeType::Http01, "HTTP-01"),
        AcmeChallenge::Dns01 => (ChallengeType::Dns01, "DNS-01"),
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
        AcmeChallenge::Dns01 => Err("DNS-01 has no response of this server".into()),
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

impl Failure {
    /// Returns the failure of all authorities.
    fn of_all(mut failures: Vec<(&str, Self)>) -> Self {
        let unreachable = failures.iter().all(|(_, failure)| failure.unreachable);
        let first = failures.first().map(|(_, failure)| failure.error.clone());
        // A fault of this server is the same with each of them.
        if let Some(error) = first
            && failures.iter().all(|(_, failure)| failure.error == error)
        {
            return Self { error, unreachable };
        }
        let each = failures
            .drain(..)
            .map(|(directory, failure)| format!("{directory}: {}", failure.error));
        Self { error: each.collect::<Vec<_>>().join("; "), unreachable }
    }
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
