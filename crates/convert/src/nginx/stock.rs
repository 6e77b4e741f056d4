//! Files that come with nginx, for configurations that are converted where it is not installed.

use std::path::Path;

/// Parameters of FastCGI and SCGI, with their variables.
const PARAMETERS: [(&str, &str); 18] = [
    ("QUERY_STRING", "$query_string"),
    ("REQUEST_METHOD", "$request_method"),
    ("CONTENT_TYPE", "$content_type"),
    ("CONTENT_LENGTH", "$content_length"),
    ("SCRIPT_NAME", "$fastcgi_script_name"),
    ("REQUEST_URI", "$request_uri"),
    ("DOCUMENT_URI", "$document_uri"),
    ("DOCUMENT_ROOT", "$document_root"),
    ("SERVER_PROTOCOL", "$server_protocol"),
    ("REQUEST_SCHEME", "$scheme"),
    ("HTTPS", "$https if_not_empty"),
    ("GATEWAY_INTERFACE", "CGI/1.1"),
    ("SERVER_SOFTWARE", "nginx/$nginx_version"),
    ("REMOTE_ADDR", "$remote_addr"),
    ("REMOTE_PORT", "$remote_port"),
    ("SERVER_ADDR", "$server_addr"),
    ("SERVER_PORT", "$server_port"),
    ("SERVER_NAME", "$server_name"),
];

/// Parameters of FastCGI alone, or of uWSGI alone.
const OF_FASTCGI: [&str; 4] =
    ["SCRIPT_NAME", "DOCUMENT_URI", "GATEWAY_INTERFACE", "SERVER_SOFTWARE"];

/// The file of Debian's package for PHP.
const PHP: &str = "fastcgi_split_path_info ^(.+?\\.php)(/.*)$;\n\
    try_files $fastcgi_script_name =404;\n\
    fastcgi_index index.php;\n";

/// The file of Debian's package for upstreams.
const PROXY: &str = "proxy_set_header Host $http_host;\n\
    proxy_set_header X-Real-IP $remote_addr;\n\
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
    proxy_set_header X-Forwarded-Proto $scheme;\n";

/// Returns what a file with the name of one that comes with nginx contains; `None` for others.
pub(super) fn text(name: &str) -> Option<String> {
    let path = Path::new(name);
    Some(match path.file_name()?.to_str()? {
        // The server has its own tables.
        "mime.types" | "koi-utf" | "koi-win" | "win-utf" => String::new(),
        "fastcgi_params" => parameters("fastcgi"),
        "fastcgi.conf" => {
            let script = "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n";
            format!("{script}{}", parameters("fastcgi"))
        }
        "scgi_params" => parameters("scgi"),
        "uwsgi_params" => parameters("uwsgi"),
        "proxy_params" => PROXY.to_owned(),
        "fastcgi-php.conf" => {
            let script = "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n";
            format!("{PHP}{script}{}", parameters("fastcgi"))
        }
        // The file of Certbot.
        "options-ssl-nginx.conf" => "ssl_protocols TLSv1.2 TLSv1.3;\n".to_owned(),
        _ => return None,
    })
}

fn parameters(kind: &str) -> String {
    let is_own = |name: &str| kind == "fastcgi" || !OF_FASTCGI.contains(&name);
    let own = PARAMETERS.iter().filter(|(name, _)| is_own(name));
    let mut text: String =
        own.map(|(name, value)| format!("{kind}_param {name} {value};\n")).collect();
    match kind {
        "fastcgi" => text.push_str("fastcgi_param REDIRECT_STATUS 200;\n"),
        _ => text.push_str(&format!("{kind}_param PATH_INFO $document_uri;\n")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn files_of_nginx_are_known() {
        assert_eq!(text("/etc/nginx/mime.types").as_deref(), Some(""));
        assert!(
            text("snippets/fastcgi-php.conf").is_some_and(|text| text.contains("fastcgi_index"))
        );
        assert!(text("uwsgi_params").is_some_and(|text| !text.contains("GATEWAY")));
        assert_eq!(text("conf.d/site.conf"), None);
    }
}
