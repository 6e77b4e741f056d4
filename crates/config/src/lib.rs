//! The configuration: one TOML file, its types, its errors and its JSON Schema.
//!
//! [`mod@file`] is the file as it is written. [`Config`] is what the server works with: checked, with every default
//! filled in, and immutable. It is pure data, so two configurations can be compared ([`diff()`]); the server creates
//! its runtime objects from it and keeps those whose rules a reload does not change.
//!
//! # Contract
//! [`Config::parse`] checks a text, [`Config::load`] a file. Both report all errors at once, each with its line and
//! column ([`Problem`]). They do not examine the files that the configuration names: the server does so before it uses
//! them, and reports what it finds at [`NamedPath::problem`].
//!
//! # Example
//! ```
//! use std::path::Path;
//!
//! use dunlin_config::{Config, Overrides};
//!
//! let text = "[[listen]]\naddress = '127.0.0.1:8080'\n[[site]]\nroot = '/srv/www'\n";
//! let config = Config::parse(text, Path::new("/etc/dunlin.toml"), &Overrides::default());
//! let site = config.as_ref().ok().and_then(|config| config.sites.find(b"a.example"));
//! assert_eq!(site.map(|site| site.name.as_str()), Some("default"));
//!
//! let text = text.replace("root", "rot");
//! let problems = Config::parse(&text, Path::new("d.toml"), &Overrides::default()).err();
//! let first = problems.and_then(|problems| Some(problems.first()?.to_string()));
//! assert_eq!(
//!     first.as_deref(),
//!     Some("d.toml:4:1: there is no key `rot` in [[site]]; did you mean `root`?")
//! );
//! ```

mod access;
mod access_log;
mod acme;
mod address;
mod alias;
mod allowed_paths;
mod auth;
mod captures;
mod check;
mod check_rules;
mod chroot;
mod ciphers;
mod coding;
mod config;
mod confinement;
mod cors;
mod dav;
mod deserialize;
mod dictionary;
mod diff;
mod error;
mod error_page;
#[cfg(test)]
mod error_tests;
mod explain;
mod explain_maps;
mod facts;
pub mod field_edits;
mod fields;
pub mod file;
mod file_test;
mod foreign;
mod forward_fields;
mod forwarded_field;
mod glob;
mod handler;
mod https;
mod includes;
mod jwt;
mod limits;
mod listen;
mod load;
mod log_format;
mod map;
mod map_routes;
mod merge;
mod methods;
mod network;
mod object_root;
mod other_servers;
mod overrides;
#[cfg(test)]
mod pair_tests;
mod path_regex;
mod pattern;
mod proxy;
mod punycode;
mod rate_limit;
mod read;
mod recent;
mod redirect;
mod referer;
mod regex_memo;
mod renamed;
mod report;
mod request_value;
mod respond;
mod response_value;
mod route_conflicts;
mod route_table;
mod schema;
mod script;
mod secrets;
mod server;
mod settings;
mod shared;
mod signed;
mod site_route;
mod sites;
mod sources;
mod spanned;
mod startup;
mod syntax;
mod template;
#[cfg(test)]
mod template_tests;
#[cfg(test)]
mod tests;
mod throttle;
mod tls;
mod transforms;
mod tries;
mod units;
mod users;
mod value_forms;
mod value_pattern;
mod vocabulary;
mod warnings;
mod when;

pub use access::{AccessRules, Alternative};
pub use access_log::AccessLog;
pub use acme::dns::{AcmeDns, DnsUpdates, Publisher, TsigKey, TsigSecret};
pub use acme::{Acme, Authority, ExternalAccount};
pub use address::Address;
pub use alias::Alias;
pub use allowed_paths::AllowedPaths;
pub use auth::{AuthEndpoint, AuthRules, BasicRules, ForwardRules};
pub use check_rules::CheckRules;
pub use chroot::Chroot;
pub use ciphers::cipher_name;
pub use coding::CodingRules;
pub use config::{Config, NamedPath, WEAK_HASHES};
pub use cors::CorsRules;
pub use dav::Dav;
pub use dictionary::PageDictionary;
pub use diff::diff;
pub use error::Problem;
pub use error_page::ErrorPage;
pub use explain::explain_settings;
pub use facts::Facts;
pub use fields::{
    ComputedField, FieldPart, FieldToSet, PendingField, RequestField, ResponseMap, valid_value,
};
pub use file::{
    AcmeChallenge, BodyHandling, ClientBy, ComponentStderr, CongestionControl,
    ConnectionUse as Persistence, EtagKind, ForwardCertificate, Interface, JwtAlgorithm,
    LinkAlgorithm, ListingFormat, PageStatus, ProxyProtocol, SameSite, SameSiteFlag, ScriptKind,
    Secret, Symlinks, TlsVersion, TsigAlgorithm, UnacceptedCoding,
};
pub use forward_fields::HOP_BY_HOP;
pub use forwarded_field::{ForwardedField, ForwardedKind, as_read, is_other_spelling, is_read_as};
pub use handler::{Handler, Status, StatusFleet};
pub use https::HttpsRules;
pub use jwt::{JwtRules, KeySource};
pub use limits::descriptor_limit;
pub use listen::{Http3, Listen};
pub use log_format::{AccessLogFormat, LogField, LogPiece, LogTemplate};
pub use merge::DefinedBy;
pub use methods::MethodRules;
pub use network::Network;
pub use object_root::{ObjectRoot, StoreRules, StoreScheme, is_object_key};
pub use overrides::Overrides;
pub use proxy::{
    Balance, Buffer, CookieFlags, Ejection, HashKey, HealthCheck, Proxy, References, Replacement,
    Retries, Service, Sticky, Upstream, UpstreamAddress, UpstreamHost, UpstreamPath,
};
pub use rate_limit::{RateKey, RateRules};
pub use recent::Recent;
pub use redirect::Redirect;
pub use respond::Respond;
pub use response_value::ResponseValue;
pub use route_table::{Found, Pair, RouteTable};
pub use script::{
    Component, Directory, Language, Local, Mapping, Outbound, Remote, RequestEnv, Script,
    WorkerAddress, Workers,
};
pub use secrets::{is_secret_name, masked};
pub use server::{
    Cache, CacheDirectory, Calls, ErrorLog, ErrorLogTarget, Http1, Http3Settings, ResourceLimits,
    ReverseDns, Server, Traces,
};
pub use settings::{CacheRules, RecordFormat, Records, ResponseCacheRules, RouteLog, Settings};
pub use shared::{Shared, Topology};
pub use signed::SignedRules;
pub use sites::{Site, Sites};
pub use sources::{SourceRule, Sources, original};
pub use spanned::{Span, Spanned};
pub use startup::{Confinement, StartupSettings};
pub use template::{Template, push_query};
pub use throttle::{BandwidthRules, ConcurrencyRules, ThrottleRules};
pub use tls::{ClientCertificates, Tls};
pub use transforms::{MediaTypes, Substitution, Transforms};
pub use tries::{Candidate, TryPath, TryStep};
pub use units::{DurationValue, Rate, Size};
pub use users::Owner;
pub use warnings::ResolvedName;
pub use when::When;
