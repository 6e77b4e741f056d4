//! Checks of the tables `store`, and of roots in object storage.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dunlin_http::semantics::Url;

use super::Checker;
use crate::file::{self, StoreTable};
use crate::object_root::{ObjectRoot, StoreRules, StoreScheme, Stores, parse};
use crate::settings::Settings;
use crate::sites::{Site, Sites};
use crate::spanned::{Span, Spanned};

impl Checker<'_> {
    /// Reads the tables of all object stores. `revalidate` is that of the file cache.
    pub(super) fn stores(&mut self, stores: &file::StoreTables, revalidate: Duration) -> Stores {
        let mut read = |scheme, table| Arc::new(self.store(scheme, table, revalidate));
        Stores {
            s3: read(StoreScheme::S3, &stores.s3),
            gs: read(StoreScheme::Gs, &stores.gs),
            az: read(StoreScheme::Az, &stores.az),
            https: read(StoreScheme::Https, &stores.https),
        }
    }

    fn store(
        &mut self,
        scheme: StoreScheme,
        table: &StoreTable,
        revalidate: Duration,
    ) -> StoreRules {
        let name = scheme.as_str();
        let StoreTable { endpoint, region, access_key, secret_key, credentials, .. } = table;
        if let Some(endpoint) = endpoint
            && let Err(what) = Url::parse(endpoint)
        {
            self.problem(&endpoint.span, format!("store.{name}: endpoint: {what}"));
        }
        if let Some(region) = region.as_ref().filter(|_| scheme != StoreScheme::S3) {
            self.problem(&region.span, format!("store.{name}: only s3 has a region"));
        }
        match (access_key, secret_key) {
            (Some(key), None) => {
                self.problem(&key.span, format!("store.{name}: `access_key` needs `secret_key`"));
            }
            (None, Some(secret)) => {
                self.problem(
                    &secret.span,
                    format!("store.{name}: `secret_key` needs `access_key`"),
                );
            }
            _ => {}
        }
        let has_files = matches!(scheme, StoreScheme::S3 | StoreScheme::Gs);
        if let Some(file) = credentials.as_ref().filter(|_| !has_files) {
            let what = format!("store.{name}: only s3 and gs have a file of credentials");
            self.problem(&file.span, what);
        }
        if let Some(file) = credentials.as_ref().filter(|_| access_key.is_some()) {
            let what = format!("store.{name}: the credentials are either here or in a file");
            self.problem(&file.span, what);
        }
        let anonymous = table.anonymous.as_deref() == Some(&true);
        if let Some(span) = table.anonymous.as_ref().filter(|_| anonymous)
            && (access_key.is_some() || credentials.is_some())
        {
            let what = format!("store.{name}: with `anonymous`, no credentials are sent");
            self.problem(&span.span, what);
        }
        StoreRules {
            endpoint: endpoint.as_ref().map(|endpoint| endpoint.value.clone()),
            region: region.as_ref().map(|region| region.value.clone()),
            access_key: access_key.as_ref().map(|key| key.value.clone()),
            secret_key: secret_key.as_ref().map(|secret| secret.value.clone()),
            credentials: credentials.as_ref().map(|file| self.credentials(file)),
            anonymous,
            authority: table
                .authority
                .as_ref()
                .map(|file| self.authority("store", "authority", file)),
            revalidate: table.revalidate.map_or(revalidate, |span| span.0),
            timeout: self.timeout(&format!("store.{name}: timeout"), &table.timeout, 10),
        }
    }

    /// Returns a file of credentials, which no client gets and which a reload reads again.
    fn credentials(&mut self, file: &Spanned<PathBuf>) -> PathBuf {
        let path = self.absolute(file);
        if let Some(folder) = path.parent() {
            self.look_up_later("credentials", folder, &file.span);
        }
        path
    }

    /// Reports a root that is not the URL of an object store.
    pub(super) fn object_root(&mut self, root: &Spanned<PathBuf>) {
        if let Err(what) = parse(root) {
            self.problem(&root.span, format!("root {what}"));
        }
    }

    /// Returns the bucket and prefix in which servers share certificates.
    pub(super) fn acme_storage(
        &mut self,
        storage: Option<&Spanned<PathBuf>>,
        stores: &Stores,
    ) -> Option<Arc<ObjectRoot>> {
        let storage = storage?;
        let problem = match parse(storage) {
            Err(what) => what,
            Ok((StoreScheme::Https, ..)) => format!(
                "{:?}: a plain HTTP server has no conditional writes; write s3://, gs:// or az://",
                storage.display().to_string()
            ),
            Ok(_) => return stores.root(storage),
        };
        self.problem(&storage.span, format!("acme_storage {problem}"));
        None
    }

    /// Reports a storage of certificates whose objects clients could request.
    pub(super) fn keep_certificates_from_clients(
        &mut self,
        (storage, found): (Option<&Spanned<PathBuf>>, Option<&Arc<ObjectRoot>>),
        sites: &Sites,
    ) {
        let (Some(storage), Some(found)) = (storage, found) else { return };
        let mut roots = sites.iter().flat_map(|site| site.object_roots());
        if let Some(root) = roots.find(|root| root.contains(found) || found.contains(root)) {
            let what = format!(
                "acme_storage {found} overlaps the root {root}, whose objects clients can request; write another prefix or bucket"
            );
            self.problem(&storage.span, what);
        }
    }

    /// Reports settings of routes that objects cannot have.
    pub(super) fn object_settings(&mut self, site: &Site) {
        for route in &site.routes {
            let settings: &Settings = site.settings_of(route);
            let Some(root) = &settings.objects else { continue };
            let route = &route.route;
            let place = |key: &str| -> Span { route.place(key).cloned() };
            if settings.records.is_some() && route.records.is_some() {
                let what = format!("records: {root} has no record files");
                self.problem(&place("records"), what);
            }
            if settings.dav.is_some() && route.dav.is_some() {
                let what = format!("dav: files in {root} cannot be changed");
                self.problem(&place("dav"), what);
            }
            if settings.etag == file::EtagKind::Sha256 && route.etag.is_some() {
                let what = format!(
                    "etag: the entity tags of {root} are those of the store; write `stat` for them, or `off`"
                );
                self.problem(&place("etag"), what);
            }
            let Some(script) = &route.script else { continue };
            if script.extensions.is_some() && script.directory.is_none() && script.file.is_none() {
                let what = format!(
                    "script: programs are not in object storage ({root}); write the `directory` of the scripts"
                );
                self.problem(&script.span, what);
            }
        }
    }
}
