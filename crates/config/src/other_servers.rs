//! Directives of other web servers, and their equivalents.

/// Returns what to write instead of a directive of another server.
pub(super) fn hint(key: &str) -> Option<&'static str> {
    let key = key.to_ascii_lowercase();
    let (_, hint) = DIRECTIVES.iter().find(|(names, _)| names.contains(&key.as_str()))?;
    Some(hint)
}

const PROXY: &str = "write proxy = \"http://127.0.0.1:3000\", a list of such URLs, or a table such as { to = [\"...\"], strip = \
    \"/prefix\" } into a [[site.route]]";
const LOCATION: &str = "write [[site.route]] with path = \"/PREFIX/*\", path = \"*.EXTENSION\" or an exact path; the more \
    specific pattern wins";
const REWRITE: &str = "write try = [\"{path}\", \"/index.php\"] into a [[site.route]] to look for files in turn, or \
    rewrite = \"/index.php?page={rest}\" to serve another path, or redirect = { to = \"/new/{rest}\" } to send clients \
    elsewhere";
const ALIAS: &str = "write alias = \"DIR\" into a [[site.route]] with path = \"/static/*\"";
const TLS: &str = "write tls = { certificate = \"FILE\", key = \"FILE\" } into [[site]], and tls = true into [[listen]]";
const LIMIT: &str = "write limit = { requests = \"10/s\" } into a [[site.route]], or throttle = { max_concurrent = 10 } for \
    requests at once";
const FIELDS: &str = "write set_fields = { \"NAME\" = \"VALUE\" } or remove_fields = [\"NAME\"] into a [[site.route]]";

/// Names of directives in lower case, and the hint.
const DIRECTIVES: [(&[&str], &str); 39] = [
    (
        &[
            "proxy_pass",
            "proxypass",
            "proxypassmatch",
            "proxypassreverse",
            "reverse_proxy",
            "reverseproxy",
            "upstream",
            "upstreams",
            "backend",
            "backends",
            "proxy_set_header",
            "proxy_cache",
            "proxy_http_version",
            "proxy_read_timeout",
            "proxy_buffering",
            "grpc_pass",
            "forward",
            "forward_to",
            "balancer",
        ],
        PROXY,
    ),
    (
        &["websocket", "websockets", "proxy_websocket"],
        "WebSocket needs no setting: a route with `proxy` or an ASGI application passes it on",
    ),
    (
        &[
            "location",
            "locations",
            "handle",
            "handle_path",
            "directory_match",
            "locationmatch",
            "filesmatch",
        ],
        LOCATION,
    ),
    (
        &["rewrite", "rewrites", "rewriterule", "rewritecond", "rewriteengine", "uri", "map", "if"],
        REWRITE,
    ),
    (
        &["try_files", "tryfiles", "fallbackresource", "fallback"],
        "write try = [\"{path}\", \"{path}/\", \"/index.html\"]; a last \"=404\" is a status",
    ),
    (&["scriptalias", "aliasmatch"], ALIAS),
    (
        &["include", "includes", "import", "includeoptional"],
        "write include = \"conf.d/*.toml\" at the start of the file",
    ),
    (
        &[
            "server_name",
            "server_names",
            "serveralias",
            "servername",
            "hostname",
            "hostnames",
            "domain",
            "domains",
            "vhost",
            "virtualhost",
        ],
        "write host = \"example.com\" or a list into [[site]]",
    ),
    (
        &["documentroot", "document_root", "docroot", "webroot", "public", "dir", "path_root"],
        "write root = \"DIRECTORY\"",
    ),
    (
        &["port", "bind", "ip", "interface"],
        "write address = \"127.0.0.1:8080\" or address = \":8080\" into [[listen]]",
    ),
    (
        &["directoryindex", "directory_index", "index_files", "index_file", "indexes"],
        "write index = [\"index.html\"]",
    ),
    (
        &["autoindex", "browse", "directory_listing", "file_server", "dir_listing"],
        "write listing = true into a [[site.route]]",
    ),
    (
        &[
            "ssl",
            "ssl_certificate",
            "ssl_certificate_key",
            "sslcertificatefile",
            "sslcertificatekeyfile",
            "sslengine",
            "certificate_key",
            "cert",
            "cert_file",
            "key_file",
            "https",
        ],
        TLS,
    ),
    (
        &["ssl_protocols", "sslprotocol", "protocols"],
        "write tls = { ..., min_version = \"1.3\" } into [[site]]",
    ),
    (&["ssl_ciphers", "sslciphersuite"], "write tls = { ..., ciphers = [...] } into [[site]]"),
    (
        &["letsencrypt", "lets_encrypt", "auto_https", "email", "certbot", "mdomain"],
        "write tls = { acme = { contact = \"ADDRESS\" } } into [[site]]",
    ),
    (
        &["return", "redir", "redirectmatch", "redirects", "redirectpermanent"],
        "write redirect = { to = \"/new\", status = 301 }, or respond = { status = 404 }, into a [[site.route]]",
    ),
    (
        &[
            "add_header",
            "headers",
            "header",
            "response_headers",
            "more_set_headers",
            "requestheader",
            "add_headers",
            "set_header",
            "set_headers",
        ],
        FIELDS,
    ),
    (
        &[
            "auth_basic",
            "auth_basic_user_file",
            "basicauth",
            "basic_auth",
            "authuserfile",
            "authtype",
            "htpasswd",
            "authname",
            "require",
        ],
        "write auth = { basic = \"USERS\" } into a [[site.route]]; `dunlin passwd USERS NAME` creates the file",
    ),
    (&["auth_request", "forward_auth"], "write auth = { forward = \"URL\" } into a [[site.route]]"),
    (
        &["auth_request_set", "copy_headers", "authresponseheaders"],
        "write auth = { forward = \"URL\", copy_to_request = [\"NAME\"], copy_to_response = [\"NAME\"] } into a [[site.route]]",
    ),
    (
        &["auth_jwt", "auth_jwt_key_file", "auth_jwt_key_request", "jwt"],
        "write auth = { jwt = { jwks = \"URL\", issuer = \"URL\", audience = \"NAME\" } } into a [[site.route]]",
    ),
    (
        &["satisfy", "requireany"],
        "write any = [{ allow = [\"10.0.0.0/8\"] }, { auth = { basic = \"USERS\" } }] into a [[site.route]]",
    ),
    (
        &["secure_link", "secure_link_md5", "secure_link_secret"],
        "write signed = { secret = \"SECRET\", expires = \"PARAMETER\" } into a [[site.route]]",
    ),
    (
        &["valid_referers", "referer"],
        "write when = { not = { referer = [\"none\", \"server_names\"] } } into a [[site.route]] with respond = { status = 403 }",
    ),
    (
        &["limit_req", "limit_req_zone", "limit_conn", "rate_limit", "ratelimit", "limit_rate"],
        LIMIT,
    ),
    (
        &["gzip", "gzip_types", "brotli", "zstd", "encode", "compression", "deflate"],
        "write compress = true, false or a list such as [\"zstd\", \"br\", \"gzip\"] into a [[site.route]]",
    ),
    (
        &["sub_filter", "sub_filter_once", "sub_filter_types", "substitutions", "replace"],
        "write substitute = { \"old\" = \"new\" } into a [[site.route]]",
    ),
    (
        &["dav_methods", "dav_ext_methods", "dav_access", "webdav", "webdav_methods"],
        "write dav = true into a [[site.route]]",
    ),
    (
        &["ssi_types", "server_side_includes", "ssi_silent_errors"],
        "write ssi = true into a [[site.route]]",
    ),
    (
        &["proxy_cache_valid", "fastcgi_cache_valid", "uwsgi_cache_valid"],
        "write cache = { responses = true, lifetime = { \"200\" = \"10m\" } } into a [[site.route]]",
    ),
    (&["gzip_static", "brotli_static"], "write precompressed = true into a [[site.route]]"),
    (
        &["error_page", "errordocument", "handle_errors", "error_document"],
        "write error_pages = { 404 = \"/404.html\" } into a [[site.route]]",
    ),
    (
        &["client_max_body_size", "max_body_size", "limitrequestbody", "request_body"],
        "write body_size = \"10MB\" into a [[site.route]]",
    ),
    (
        &[
            "fastcgi_pass",
            "fastcgi_param",
            "php_fastcgi",
            "uwsgi_pass",
            "scgi_pass",
            "fastcgi_index",
            "fastcgi",
            "php",
            "cgi",
        ],
        "write script = { kind = \"fastcgi\", root = \"DIRECTORY\", connect = [\"unix:/run/php/php-fpm.sock\"] } into a [[site.route]] with path = \"*.php\"",
    ),
    (
        &["worker_processes", "worker_connections", "workers", "maxrequestworkers", "threads_max"],
        "write threads = N or connections = N into [server]",
    ),
    (
        &[
            "keepalive_timeout",
            "keepalive",
            "client_header_timeout",
            "client_body_timeout",
            "send_timeout",
            "timeout",
            "keep_alive_timeout",
        ],
        "write idle_timeout, head_timeout, body_timeout or send_timeout into [server.http1]",
    ),
    (
        &[
            "log_format",
            "customlog",
            "logformat",
            "accesslog",
            "error_log_level",
            "errorlog",
            "log",
        ],
        "write access_log = { path = \"FILE\", format = \"combined\" } or error_log = { path = \"FILE\", level = \"info\" } into [server]",
    ),
    (
        &["set_real_ip_from", "real_ip_header", "remoteip", "remoteipheader", "trusted_proxy"],
        "write trusted_proxies = [\"192.0.2.0/24\"] into [server]",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_directive_is_a_key_of_the_file_or_named_twice() {
        let names: Vec<_> = DIRECTIVES.iter().flat_map(|(names, _)| *names).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[at + 1..].contains(name), "{name} is named twice");
        }
        assert!(hint("Proxy_Pass").is_some_and(|hint| hint.contains("proxy = ")));
        assert!(hint("listing").is_none());
    }
}
