//! Global options.

use super::context::Context;
use crate::directive::Directive;
use crate::units::shown_time;
use crate::value::Value;

/// Options that need no counterpart, with the reason.
const NOT_NEEDED: [(&[&str], &str); 5] = [
    (
        &[
            "storage",
            "storage_clean_interval",
            "renew_interval",
            "ocsp_interval",
            "ocsp_stapling",
            "key_type",
            "cert_lifetime",
            "preferred_chains",
            "skip_install_trust",
            "local_certs",
            "persist_config",
        ],
        "certificates are in the directory `state`",
    ),
    (&["admin"], "commands go to the Unix socket `admin` of [server]; there is no API"),
    (&["order"], "the order of directives has been applied"),
    (&["grace_period", "shutdown_delay"], "`stop_timeout` and `drain` of [server] are these times"),
    (
        &["debug", "metrics", "default_sni", "fallback_sni", "default_bind", "filesystem"],
        "it has no effect on responses",
    ),
];

pub(super) fn convert(tree: &[Directive], context: &mut Context) {
    for options in tree.iter().filter(|directive| directive.name.is_empty()) {
        context.report.carried(options);
        for option in options.children() {
            one(option, context);
        }
    }
}

fn one(option: &Directive, context: &mut Context) {
    let word = option.word(0);
    match option.name.as_str() {
        "email" => context.email = Some(word.to_owned()),
        "http_port" => context.http_port = word.parse().unwrap_or(80),
        "https_port" => context.https_port = word.parse().unwrap_or(443),
        "auto_https" => {
            context.redirects = !matches!(word, "off" | "disable_redirects");
            context.has_certificates = word != "off";
        }
        "log" => {
            for child in option.children() {
                match (child.name.as_str(), child.word(0).to_ascii_lowercase().as_str()) {
                    ("level", level @ ("debug" | "warn" | "error")) => {
                        context.report.carried(child);
                        context.document.set("server.error_log", "level", Value::text(level));
                    }
                    ("output", "file") => {
                        context.report.carried(child);
                        let path = context.in_folder(child.word(1));
                        context.document.set("server.error_log", "path", Value::text(path));
                    }
                    ("format", "json") => {
                        context.report.carried(child);
                        context.document.set("server.error_log", "format", Value::text("json"));
                    }
                    _ => context.report.not_needed(child, "the error log is on standard error"),
                }
            }
        }
        "servers" => option.children().iter().for_each(|child| server(child, context)),
        "acme_ca" | "acme_ca_root" | "acme_eab" | "acme_dns" | "cert_issuer" | "on_demand_tls"
        | "pki" => {
            return context.report.lost(
                option,
                "write it into `acme` of each site: certificates are those of Let's Encrypt",
            );
        }
        name => {
            let known = NOT_NEEDED.iter().find(|(names, _)| names.contains(&name));
            option.children().iter().for_each(|child| {
                context.report.not_needed(child, "its option has no counterpart");
            });
            return match known {
                Some((_, why)) => context.report.not_needed(option, *why),
                None => context.report.lost(option, "the option has no counterpart"),
            };
        }
    }
    context.report.carried(option);
}

/// Options of `servers`.
fn server(child: &Directive, context: &mut Context) {
    match child.name.as_str() {
        "timeouts" => {
            for time in child.children() {
                let key = match time.name.as_str() {
                    "read_body" => "body_timeout",
                    "read_header" => "head_timeout",
                    "write" => "send_timeout",
                    _ => "idle_timeout",
                };
                match crate::units::time(time.word(0)).filter(|time| *time > 0) {
                    Some(value) => {
                        context.report.carried(time);
                        context.document.set("server.http1", key, Value::text(shown_time(value)));
                    }
                    None => context.report.not_needed(time, "the default of the server holds"),
                }
            }
        }
        "trusted_proxies" if child.word(0) == "static" => {
            let mut networks = Vec::new();
            for word in child.words.iter().skip(1) {
                match word.as_str() {
                    "private_ranges" => networks.extend(
                        [
                            "192.168.0.0/16",
                            "172.16.0.0/12",
                            "10.0.0.0/8",
                            "127.0.0.0/8",
                            "fd00::/8",
                            "::1",
                        ]
                        .map(str::to_owned),
                    ),
                    word => networks.push(word.to_owned()),
                }
            }
            context.document.set("server", "trusted_proxies", Value::list(networks));
        }
        "client_ip_headers" => {
            if let Some(field) =
                child.words.first().filter(|field| !field.eq_ignore_ascii_case("x-forwarded-for"))
            {
                context.document.set("server", "forwarded_field", Value::text(field));
            }
        }
        "max_header_size" | "protocols" | "protocol" | "strict_sni_host" | "keepalive_interval"
        | "metrics" | "log_credentials" | "name" | "enable_full_duplex" => {
            child
                .children()
                .iter()
                .for_each(|child| context.report.not_needed(child, "HTTP/1.1 and HTTP/2 are on"));
            return context
                .report
                .not_needed(child, "HTTP/1.1 and HTTP/2 are on, with limits of [server.http1]");
        }
        _ => {
            child
                .children()
                .iter()
                .for_each(|child| context.report.not_needed(child, "its option is lost"));
            return context.report.lost(child, "the option has no counterpart");
        }
    }
    context.report.carried(child);
}
