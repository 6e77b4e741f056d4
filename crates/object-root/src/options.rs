//! Makes clients from the rules of the configuration.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use dunlin_config::{ObjectRoot, StoreRules, StoreScheme};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use object_store::aws::{AmazonS3Builder, AwsCredential, AwsCredentialProvider};
use object_store::azure::{AzureAccessKey, AzureCredential, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::{BackoffConfig, ClientOptions, RetryConfig, StaticCredentialProvider};

use crate::bucket::Bucket;
use crate::connector::Connector;
use crate::credentials::Credentials;

/// Makes the client of the bucket of `root`.
pub(crate) fn open(root: &ObjectRoot) -> Result<Bucket, String> {
    let (options, connector) = (client_options(&root.store), connector(&root.store)?);
    let has_hmac = root.store.access_key.is_some();
    match root.scheme {
        StoreScheme::S3 => s3(root, options, connector),
        // HMAC keys are those of the interface that Google Cloud Storage shares with S3.
        StoreScheme::Gs if has_hmac => hmac(root, options, connector),
        StoreScheme::Gs => gs(root, options, connector),
        StoreScheme::Az => az(root, options, connector),
        StoreScheme::Https => https(root, options, connector),
    }
}

/// No request is repeated by the client of the store: the server has a stale object, or responds with 503.
fn retry() -> RetryConfig {
    let backoff = BackoffConfig::default();
    RetryConfig { backoff, max_retries: 0, retry_timeout: Duration::ZERO }
}

fn client_options(rules: &StoreRules) -> ClientOptions {
    let is_plain = rules.endpoint.as_ref().is_some_and(|url| url.starts_with("http://"));
    // The time of a whole response depends on its size.
    ClientOptions::new().with_allow_http(is_plain).with_timeout_disabled()
}

fn connector(rules: &StoreRules) -> Result<Connector, String> {
    Ok(Connector { tls: dunlin_tls::client_config_besides(rules.authority.as_deref())? })
}

fn s3(root: &ObjectRoot, options: ClientOptions, connector: Connector) -> Result<Bucket, String> {
    let rules = &root.store;
    let mut builder = AmazonS3Builder::from_env();
    if let Some(endpoint) = &rules.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
    } else if std::env::var("AWS_ENDPOINT_URL").is_ok_and(|url| url.starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    // The region of the environment has another name there.
    if let Some(region) = rules.region.clone().or_else(|| std::env::var("AWS_REGION").ok()) {
        builder = builder.with_region(region);
    }
    if let Some(file) = &rules.credentials {
        let Credentials { access_key, secret_key, token } = Credentials::read(file)?;
        builder = builder.with_credentials(fixed(access_key, secret_key, token));
    }
    finish_s3(root, builder, options, connector)
}

fn hmac(root: &ObjectRoot, options: ClientOptions, connector: Connector) -> Result<Bucket, String> {
    let endpoint = root.store.endpoint.as_deref().unwrap_or("https://storage.googleapis.com");
    let builder =
        AmazonS3Builder::new().with_endpoint(endpoint.trim_end_matches('/')).with_region("auto");
    finish_s3(root, builder, options, connector)
}

fn finish_s3(
    root: &ObjectRoot,
    mut builder: AmazonS3Builder,
    options: ClientOptions,
    connector: Connector,
) -> Result<Bucket, String> {
    let rules = &root.store;
    if let (Some(access_key), Some(secret_key)) = (&rules.access_key, &rules.secret_key) {
        let secret_key = secret_key.reveal().to_owned();
        builder = builder.with_credentials(fixed(access_key.clone(), secret_key, None));
    }
    if rules.anonymous {
        builder = builder.with_skip_signature(true);
    }
    let is_plain = rules.endpoint.as_ref().is_some_and(|url| url.starts_with("http://"))
        || rules.endpoint.is_none()
            && std::env::var("AWS_ENDPOINT_URL").is_ok_and(|url| url.starts_with("http://"));
    let store = builder
        .with_bucket_name(&root.bucket)
        .with_retry(retry())
        .with_http_connector(connector)
        .with_client_options(options.with_allow_http(is_plain))
        .build();
    Ok(Bucket::paged(Arc::new(store.map_err(|error| error.to_string())?)))
}

/// Credentials of the configuration, in place of all of the environment: a token of the environment belongs to its key.
fn fixed(key_id: String, secret_key: String, token: Option<String>) -> AwsCredentialProvider {
    Arc::new(StaticCredentialProvider::new(AwsCredential { key_id, secret_key, token }))
}

fn gs(root: &ObjectRoot, options: ClientOptions, connector: Connector) -> Result<Bucket, String> {
    let rules = &root.store;
    let mut builder = GoogleCloudStorageBuilder::from_env();
    if let Some(endpoint) = &rules.endpoint {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    if let Some(file) = &rules.credentials {
        builder = builder.with_service_account_path(file.display().to_string());
    }
    if rules.anonymous {
        builder = builder.with_skip_signature(true);
    }
    let store = builder
        .with_bucket_name(&root.bucket)
        .with_retry(retry())
        .with_http_connector(connector)
        .with_client_options(options)
        .build();
    // The message of the parser of a service account has parts of the file, which may be the key.
    let wrong = |error: object_store::Error| match &rules.credentials {
        Some(file) => {
            format!("credentials {}: it is not the key of a service account", file.display())
        }
        None => error.to_string(),
    };
    Ok(Bucket::paged(Arc::new(store.map_err(wrong)?)))
}

fn az(root: &ObjectRoot, options: ClientOptions, connector: Connector) -> Result<Bucket, String> {
    let rules = &root.store;
    let mut builder = MicrosoftAzureBuilder::from_env();
    if let (Some(account), Some(key)) = (&rules.access_key, &rules.secret_key) {
        let key = AzureAccessKey::try_new(key.reveal())
            .map_err(|_| "secret_key is not that of an account, which is in Base64")?;
        let credential = StaticCredentialProvider::new(AzureCredential::AccessKey(key));
        builder = builder.with_account(account).with_credentials(Arc::new(credential));
    }
    if let Some(endpoint) = &rules.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    if rules.anonymous {
        builder = builder.with_skip_signature(true);
    }
    let store = builder
        .with_container_name(&root.bucket)
        .with_retry(retry())
        .with_http_connector(connector)
        .with_client_options(options)
        .build();
    Ok(Bucket::paged(Arc::new(store.map_err(|error| error.to_string())?)))
}

fn https(
    root: &ObjectRoot,
    mut options: ClientOptions,
    connector: Connector,
) -> Result<Bucket, String> {
    let rules = &root.store;
    if let (Some(user), Some(password)) = (&rules.access_key, &rules.secret_key) {
        let pair = BASE64_STANDARD.encode(format!("{user}:{}", password.reveal()));
        let mut value = HeaderValue::from_str(&format!("Basic {pair}"))
            .map_err(|_| "access_key or secret_key has a character that no field can have")?;
        value.set_sensitive(true);
        options = options.with_default_headers(HeaderMap::from_iter([(AUTHORIZATION, value)]));
    }
    let url = match &rules.endpoint {
        Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
        None => format!("https://{}", root.bucket),
    };
    let store = HttpBuilder::new()
        .with_url(url)
        .with_retry(retry())
        .with_http_connector(connector)
        .with_client_options(options)
        .build();
    Ok(Bucket::plain(Arc::new(store.map_err(|error| error.to_string())?)))
}
