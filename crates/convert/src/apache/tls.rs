//! `mod_ssl` and `mod_md`.

use super::context::Context;
use super::scope::Scope;
use crate::value::Value;

/// Returns the table `tls` of a server; `None` if it has no TLS.
pub(super) fn table(scope: &Scope<'_>, context: &mut Context) -> Option<Value> {
    let engine = scope.get("SSLEngine")?;
    context.report.carried(engine);
    if !scope.is_on("SSLEngine") {
        return None;
    }
    let mut table = Value::Table(Vec::new());
    let managed = scope.get("MDomain").or(scope.get("MDomains"));
    if let Some(directive) = managed {
        context.report.carried(directive);
        table.set("acme", Value::Table(Vec::new()));
    } else {
        let level = |name: &str| scope.innermost(&[name]);
        let (certificates, keys) = (level("SSLCertificateFile"), level("SSLCertificateKeyFile"));
        if certificates.is_empty() {
            context.report.lost(engine, "there is no certificate: handshakes fail");
            return None;
        }
        let mut files = |directives: &[&crate::directive::Directive]| {
            let path = |directive: &&crate::directive::Directive| {
                context.report.carried(directive);
                context.in_root(directive.word(0))
            };
            Value::one_or_many(directives.iter().map(path).collect())
        };
        // A file can have both.
        let keys = if keys.is_empty() { &certificates } else { &keys };
        let (certificates, keys) = (files(&certificates), files(keys));
        table.set("certificate", certificates);
        table.set("key", keys);
    }
    if let Some(directive) = scope.get("SSLCertificateChainFile") {
        context.report.lost(directive, "the file of the certificate has to have the chain, too");
    }
    protocols(scope, &mut table, context);
    clients(scope, &mut table, context);
    Some(table)
}

fn protocols(scope: &Scope<'_>, table: &mut Value, context: &mut Context) {
    let Some(directive) = scope.get("SSLProtocol") else { return };
    let words: Vec<String> = directive.words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let has = |name: &str| words.iter().any(|word| word.trim_start_matches('+') == name);
    let is_removed = |name: &str| words.iter().any(|word| word.strip_prefix('-') == Some(name));
    let is_old = has("tlsv1")
        || has("tlsv1.1")
        || has("all") && !(is_removed("tlsv1") && is_removed("tlsv1.1"));
    match is_old {
        true => {
            context
                .report
                .differs(directive, "clients need TLS 1.2: older versions are not secure");
        }
        false => context.report.carried(directive),
    }
    let is_new_only =
        has("tlsv1.3") && !has("tlsv1.2") && !has("all") || has("all") && is_removed("tlsv1.2");
    if is_new_only {
        table.set("min_version", Value::text("1.3"));
    }
}

/// Certificates of clients.
fn clients(scope: &Scope<'_>, table: &mut Value, context: &mut Context) {
    let Some(verify) = scope.get("SSLVerifyClient") else { return };
    if verify.word(0).eq_ignore_ascii_case("none") {
        return context.report.carried(verify);
    }
    let Some(authority) = scope.get("SSLCACertificateFile") else {
        return context
            .report
            .lost(verify, "there is no file of authorities: no certificate is requested");
    };
    context.report.carried(authority);
    table.set("client_authority", Value::text(context.in_root(authority.word(0))));
    match verify.word(0).to_ascii_lowercase().as_str() {
        "require" => context.report.carried(verify),
        _ => {
            context.report.differs(verify, "a certificate that a client sends must be valid");
            table.set("client_required", Value::Switch(false));
        }
    }
    if let Some(list) = scope.get("SSLCARevocationFile") {
        context.report.carried(list);
        table.set("client_revoked", Value::text(context.in_root(list.word(0))));
    }
}
