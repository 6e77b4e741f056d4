//! `tls` and automatic HTTPS.

use super::address::Address;
use super::context::Context;
use crate::directive::Directive;
use crate::value::Value;

/// Returns the table `tls` of a site.
pub(super) fn table(
    site: &Directive,
    addresses: &[Address],
    context: &mut Context,
) -> Option<Value> {
    let mut table = Value::Table(Vec::new());
    let mut acme = Value::Table(Vec::new());
    if let Some(email) = &context.email {
        acme.set("contact", Value::text(email.clone()));
    }
    for directive in site.children().iter().filter(|child| child.name == "tls") {
        context.report.carried(directive);
        match &directive.words[..] {
            [] => {}
            [only] if only == "internal" => {
                context.report.lost(directive, "there is no internal certificate authority: handshakes fail; `dunlin serve --tls-self-signed` is for development");
                return None;
            }
            [only] if only.contains('@') => acme.set("contact", Value::text(only)),
            [certificate, key] => {
                table.set("certificate", Value::text(context.in_folder(certificate)));
                table.set("key", Value::text(context.in_folder(key)));
            }
            _ => context.report.lost(directive, "its words are neither an address nor two files"),
        }
        for child in directive.children() {
            option(child, &mut table, &mut acme, context);
        }
    }
    if table.get("certificate").is_none() {
        if addresses.iter().any(Address::is_internal) {
            context.report.lost(site, "no public authority has certificates for these addresses, and there is no internal certificate authority: handshakes fail; `dunlin serve --tls-self-signed` is for development");
            return None;
        }
        table.set("acme", acme);
    }
    Some(table)
}

/// Reports `tls` of a site whose requests come without.
pub(super) fn without(site: &Directive, context: &mut Context) {
    for directive in site.children().iter().filter(|child| child.name == "tls") {
        context.report.not_needed(directive, "the addresses of the site are those of http");
        directive
            .children()
            .iter()
            .for_each(|child| context.report.not_needed(child, "the site has no TLS"));
    }
}

fn option(child: &Directive, table: &mut Value, acme: &mut Value, context: &mut Context) {
    match child.name.as_str() {
        "protocols" => {
            if child.word(0) == "tls1.3" {
                table.set("min_version", Value::text("1.3"));
            }
        }
        "ca" => acme.set("directory", Value::text(child.word(0))),
        "ca_root" => acme.set("authority", Value::text(context.in_folder(child.word(0)))),
        "eab" => {
            return context.report.lost(child, "the key of the account is in a file: write `external_account = { id, key }` of `acme`");
        }
        "dns"
        | "dns_ttl"
        | "propagation_timeout"
        | "propagation_delay"
        | "resolvers"
        | "dns_challenge_override_domain" => {
            return context.report.lost(child, "records are published by RFC 2136 or by a program: write `dns = { command = [...] }` of `acme`");
        }
        "client_auth" => return client_auth(child, table, context),
        "ciphers"
        | "curves"
        | "alpn"
        | "key_type"
        | "reuse_private_keys"
        | "insecure_secrets_log"
        | "load" => {
            return context.report.not_needed(child, "suites and keys are the safe ones of rustls");
        }
        "issuer" if child.word(0) == "acme" => {}
        "on_demand" => {
            return context.report.lost(
                child,
                "certificates are obtained for the hosts of sites, and not during handshakes",
            );
        }
        _ => return context.report.lost(child, "it has no counterpart"),
    }
    context.report.carried(child);
}

fn client_auth(directive: &Directive, table: &mut Value, context: &mut Context) {
    context.report.carried(directive);
    let mut mode = "require_and_verify".to_owned();
    for child in directive.children() {
        match child.name.as_str() {
            "mode" => child.word(0).clone_into(&mut mode),
            "trusted_ca_cert_file" => {
                table.set("client_authority", Value::text(context.in_folder(child.word(0))));
            }
            _ => {
                context.report.lost(child, "authorities of clients are in one file");
                continue;
            }
        }
        context.report.carried(child);
    }
    match (mode.as_str(), table.get("client_authority").is_some()) {
        ("require_and_verify", true) => {}
        (_, true) => {
            context.report.differs(directive, "a certificate that a client sends must be valid");
            table.set("client_required", Value::Switch(false));
        }
        (_, false) => context
            .report
            .lost(directive, "there is no file of authorities: no certificate is requested"),
    }
}
