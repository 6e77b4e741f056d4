//! Object stores.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Spanned;
use crate::units::DurationValue;

/// The services of roots that are in object storage, by the scheme of `root`. Needs a build with the feature `fleet`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Stores")]
pub struct StoreTables {
    /// Amazon S3, or a service with its interface.
    pub s3: StoreTable,
    /// Google Cloud Storage.
    pub gs: StoreTable,
    /// Azure Blob Storage.
    pub az: StoreTable,
    /// Any HTTP server that has the files.
    pub https: StoreTable,
}

/// The service of an object store.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreTable {
    /// URL of the service, such as `http://127.0.0.1:9000`. Default: that of the environment (`AWS_ENDPOINT_URL`,
    /// `AZURE_ENDPOINT`), otherwise that of the provider. With `https`, the server that is connected to instead of the one
    /// that `root` names.
    pub endpoint: Option<Spanned<String>>,
    /// Region of an `s3` bucket. Default: that of the environment (`AWS_REGION`, `AWS_DEFAULT_REGION`), otherwise `us-east-1`.
    pub region: Option<Spanned<String>>,
    /// Name of the key: the access key ID of `s3`, of an HMAC key of `gs`, the account of `az`, the user of `https`. Default: that
    /// of the environment (`AWS_ACCESS_KEY_ID`, `AZURE_STORAGE_ACCOUNT_NAME`), otherwise what the machine's metadata service
    /// has.
    pub access_key: Option<Spanned<String>>,
    /// The secret key; the password of `https`. Default: that of the environment (`AWS_SECRET_ACCESS_KEY`,
    /// `AZURE_STORAGE_ACCOUNT_KEY`), otherwise what the machine's metadata service has.
    pub secret_key: Option<Spanned<Secret>>,
    /// File with the credentials, read at a start and at a reload: for `s3` in the format of `~/.aws/credentials`, for `gs` the
    /// JSON file of a service account.
    pub credentials: Option<Spanned<PathBuf>>,
    /// `true` sends requests without credentials, for public buckets. Default: false.
    pub anonymous: Option<Spanned<bool>>,
    /// File of the authorities that sign the certificate of the service, besides those that the system trusts.
    pub authority: Option<Spanned<PathBuf>>,
    /// Time for which an object is served without a conditional request to the store. Default: `revalidate` of
    /// `[server.cache]`.
    pub revalidate: Option<DurationValue>,
    /// Time in which the store has to begin its response, and longest pause within it. Default: `10s`.
    pub timeout: Option<Spanned<DurationValue>>,
}

/// A value that is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The value. It must not reach a log, a page or an error message.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
