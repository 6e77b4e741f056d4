//! Certificates and TLS.

use super::context::Context;
use super::scope::Scope;
use crate::value::Value;

/// Returns the table `tls` of a site; `None` without certificates.
pub(super) fn table(scope: &Scope<'_>, context: &mut Context<'_>) -> Option<Value> {
    let certificates = scope.all(&["ssl_certificate"]);
    let keys = scope.all(&["ssl_certificate_key"]);
    if rejected(scope, context) {
        return None;
    }
    if certificates.is_empty() || certificates.len() != keys.len() {
        return None;
    }
    let mut files = [Vec::new(), Vec::new()];
    for (list, directives) in files.iter_mut().zip([&certificates, &keys]) {
        for directive in directives {
            if directive.word(0).contains('$') {
                context
                    .report
                    .lost(directive, "the file depends on the handshake: there is no certificate");
                return None;
            }
            context.report.carried(directive);
            list.push(context.in_folder(directive.word(0)));
        }
    }
    let [certificates, keys] = files.map(Value::one_or_many);
    let mut table = Value::table([("certificate", certificates), ("key", keys)]);
    if let Some(directive) = scope.get("ssl_protocols") {
        let has = |version: &str| directive.words.iter().any(|word| word == version);
        let is_old = ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1"].into_iter().any(has);
        match is_old {
            true => context
                .report
                .differs(directive, "clients need TLS 1.2: older versions are not secure"),
            false => context.report.carried(directive),
        }
        if has("TLSv1.3") && !has("TLSv1.2") && !is_old {
            table.set("min_version", Value::text("1.3"));
        }
    }
    if let Some(directive) = scope.get("ssl_ciphers") {
        context.report.not_needed(
            directive,
            "the suites are the safe ones of rustls; `ciphers` of `tls` names others",
        );
    }
    clients(scope, &mut table, context);
    if let Some(directive) = scope.get("ssl_early_data") {
        context.report.carried(directive);
        if directive.word(0) == "on" {
            table.set("early_data", Value::Switch(true));
        }
    }
    if let Some(directive) = scope.get("ssl_stapling_file") {
        context.report.carried(directive);
        let file = context.in_folder(directive.word(0));
        table.set("ocsp", Value::text(file));
    }
    Some(table)
}

/// Returns `true` if handshakes for the hosts of the server are rejected, as they are without a certificate.
fn rejected(scope: &Scope<'_>, context: &mut Context<'_>) -> bool {
    let Some(directive) = scope.get("ssl_reject_handshake") else { return false };
    let is_on = directive.word(0) == "on";
    match is_on {
        true => context.report.differs(
            directive,
            "a client that names no host gets the certificate of the first site that has one",
        ),
        false => context.report.carried(directive),
    }
    is_on
}

/// Certificates of clients.
fn clients(scope: &Scope<'_>, table: &mut Value, context: &mut Context<'_>) {
    let verify = scope.get("ssl_verify_client");
    let Some(verify) = verify.filter(|verify| verify.word(0) != "off") else { return };
    let Some(authority) =
        scope.get("ssl_client_certificate").or_else(|| scope.get("ssl_trusted_certificate"))
    else {
        return context
            .report
            .lost(verify, "there is no file of authorities: no certificate is requested");
    };
    context.report.carried(authority);
    let file = context.in_folder(authority.word(0));
    table.set("client_authority", Value::text(file));
    match verify.word(0) {
        "on" => context.report.carried(verify),
        "optional" => {
            context.report.carried(verify);
            table.set("client_required", Value::Switch(false));
        }
        _ => {
            context.report.differs(verify, "a certificate that a client sends must be valid");
            table.set("client_required", Value::Switch(false));
        }
    }
    if let Some(list) = scope.get("ssl_crl") {
        context.report.carried(list);
        let file = context.in_folder(list.word(0));
        table.set("client_revoked", Value::text(file));
    }
}
