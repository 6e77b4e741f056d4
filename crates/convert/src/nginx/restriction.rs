//! Directives that decide who may send requests.

use super::parse::Directive;

/// Directives of other modules that decide who may send requests.
pub(super) const FOREIGN: [&str; 12] = [
    "access_by_lua",
    "access_by_lua_block",
    "access_by_lua_file",
    "auth_digest",
    "auth_gss",
    "auth_ldap",
    "auth_ldap_servers",
    "auth_oidc",
    "auth_pam",
    "auth_spnego",
    "js_access",
    "perl_access",
];

/// Returns `true` if a block rejects requests, or lets only some of them through.
pub(super) fn restricts(block: &[Directive]) -> bool {
    block.iter().any(|directive| match directive.name.as_str() {
        "return" => rejection(directive).is_some(),
        "deny" | "internal" | "limit_except" | "secure_link" | "secure_link_secret" => true,
        "auth_basic" | "auth_request" | "auth_jwt" => directive.word(0) != "off",
        "if" | "location" => restricts(directive.children()),
        name => FOREIGN.contains(&name) && directive.word(0) != "off",
    })
}

/// Returns the status with which a `return` rejects requests.
pub(super) fn rejection(directive: &Directive) -> Option<u16> {
    directive.word(0).parse().ok().filter(|status| (400..500).contains(status))
}
