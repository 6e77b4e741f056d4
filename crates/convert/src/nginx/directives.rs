//! The directives of nginx's standard modules, and those of brotli and headers-more, with what becomes of each.

/// What becomes of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The conversion reads it where it is in force.
    Read,
    /// There is no need for it, for this reason.
    NotNeeded(&'static str),
    /// It is lost; the text is what a request sees.
    Lost(&'static str),
}

use Fate::{Lost, NotNeeded, Read};

/// Returns what becomes of the directive of that name; `None` if no standard module has it.
pub(super) fn fate(name: &str) -> Option<Fate> {
    let is_named = |(names, fate): &(&str, Fate)| {
        names.split_ascii_whitespace().any(|other| other == name).then_some(*fate)
    };
    DIRECTIVES.iter().find_map(is_named)
}

const MEMORY: Fate =
    NotNeeded("buffers and tables grow as they are needed, within the limits of the server");
const SYSTEM: Fate = NotNeeded("the server chooses how it uses the system");
const BUFFERS: Fate = NotNeeded("bodies are streamed, with buffers that the server sizes itself");
const CACHE: Fate = NotNeeded("the response cache always does so, or as RFC 9111 has it");
const TLS: Fate = NotNeeded("rustls chooses safe parameters, sessions and tickets itself");
const STREAMED: Fate = NotNeeded("responses are streamed, without temporary files");
const WORKERS: Fate = NotNeeded(
    "there is a worker for each processor, and connections are bounded by the descriptor limit",
);
const NO_CGI_CACHE: Fate = NotNeeded("only routes whose responses are cached have a use for it");

/// Names, separated by blanks, with what becomes of them.
const DIRECTIVES: [(&str, Fate); 73] = [
    // Core and contexts.
    (
        "http server location upstream if limit_except include events types map geo split_clients",
        Read,
    ),
    (
        "user pid error_log worker_processes worker_connections worker_rlimit_nofile worker_rlimit_core",
        Read,
    ),
    (
        "load_module",
        NotNeeded("there are no modules to load; their directives are judged one by one"),
    ),
    (
        "worker_cpu_affinity worker_priority worker_shutdown_timeout worker_aio_requests accept_mutex accept_mutex_delay \
         multi_accept use lock_file thread_pool timer_resolution pcre_jit debug_connection debug_points working_directory \
         ssl_engine",
        WORKERS,
    ),
    (
        "daemon master_process",
        NotNeeded("the server stays in the foreground, as systemd and containers expect it"),
    ),
    ("env", Lost("scripts do not inherit the variable")),
    ("stream mail rtmp", Lost("connections of other protocols than HTTP are not served")),
    // Requests and connections.
    (
        "listen server_name root alias index try_files internal error_page return rewrite set break",
        Read,
    ),
    (
        "client_max_body_size client_header_timeout client_body_timeout send_timeout keepalive_timeout keepalive_requests",
        Read,
    ),
    (
        "large_client_header_buffers default_type etag autoindex autoindex_exact_size autoindex_localtime autoindex_format charset charset_types expires add_header add_trailer",
        Read,
    ),
    (
        "client_body_buffer_size client_header_buffer_size connection_pool_size request_pool_size output_buffers \
         postpone_output server_names_hash_bucket_size server_names_hash_max_size types_hash_bucket_size types_hash_max_size \
         variables_hash_bucket_size variables_hash_max_size map_hash_bucket_size map_hash_max_size subrequest_output_buffer_size \
         proxy_headers_hash_bucket_size proxy_headers_hash_max_size",
        MEMORY,
    ),
    (
        "sendfile sendfile_max_chunk tcp_nopush tcp_nodelay aio aio_write directio directio_alignment read_ahead send_lowat \
         reset_timedout_connection keepalive_disable lingering_close lingering_time lingering_timeout open_file_cache open_file_cache_errors \
         open_file_cache_min_uses open_file_cache_valid open_file_cache_events open_log_file_cache keepalive_time \
         client_body_temp_path client_body_in_file_only client_body_in_single_buffer",
        SYSTEM,
    ),
    ("server_tokens", Read),
    ("resolver resolver_timeout", Read),
    ("merge_slashes", Read),
    ("disable_symlinks", Read),
    (
        "auth_jwt satisfy allow deny auth_basic auth_basic_user_file auth_request auth_request_set auth_delay",
        Read,
    ),
    (
        "auth_jwt_key_file auth_jwt_key_request auth_jwt_require auth_jwt_type auth_jwt_leeway",
        Lost("tokens are not verified; where they are needed, requests get 403"),
    ),
    (
        "limit_rate limit_rate_after limit_req limit_req_zone limit_req_status limit_conn limit_conn_zone limit_conn_status",
        Read,
    ),
    (
        "limit_req_log_level limit_conn_log_level log_not_found log_subrequest rewrite_log",
        NotNeeded("the level of messages follows from their kind"),
    ),
    ("limit_req_dry_run limit_conn_dry_run", Read),
    ("max_ranges", Read),
    (
        "absolute_redirect port_in_redirect server_name_in_redirect",
        NotNeeded(
            "`Location` is relative to the URL of the request (RFC 9110), so that scheme, host and port are those of the client",
        ),
    ),
    (
        "ignore_invalid_headers underscores_in_headers",
        NotNeeded(
            "fields that are not valid are rejected; names with `_` are passed on, except for those that imitate fields of the server",
        ),
    ),
    (
        "msie_padding msie_refresh ancient_browser ancient_browser_value modern_browser modern_browser_value",
        NotNeeded("it serves browsers that no longer exist"),
    ),
    ("chunked_transfer_encoding if_modified_since", NotNeeded("as HTTP has it")),
    (
        "early_hints",
        NotNeeded("clients of HTTP/1.1 and later get each 103 (Early Hints) of an upstream"),
    ),
    (
        "recursive_error_pages",
        NotNeeded("an error page has no error page itself; there is no loop"),
    ),
    ("post_action", Lost("no request follows a response")),
    // Logs.
    ("access_log log_format", Read),
    // Files.
    (
        "charset_map source_charset override_charset",
        Lost("text is not recoded; its bytes are sent as they are"),
    ),
    (
        "gzip gzip_types gzip_proxied gzip_static brotli brotli_types brotli_static zstd zstd_static zstd_types",
        Read,
    ),
    (
        "gzip_comp_level gzip_min_length gzip_vary gzip_buffers gzip_disable gzip_http_version gunzip gunzip_buffers brotli_comp_level \
         brotli_buffers brotli_min_length brotli_window zstd_comp_level zstd_min_length zstd_buffers",
        NotNeeded(
            "coding, level, size and `Vary` are chosen by the server, and each result is kept in the cache",
        ),
    ),
    ("add_before_body add_after_body addition_types", Lost("nothing is added to bodies")),
    (
        "flv mp4 mp4_limit_rate mp4_limit_rate_after mp4_start_key_frame",
        Lost("the parameter `start` has no effect; players use ranges"),
    ),
    (
        "mp4_buffer_size mp4_max_buffer_size",
        NotNeeded("only `mp4` has a use for buffers of its metadata"),
    ),
    ("random_index", Lost("the response to a directory is not a random file")),
    (
        "image_filter image_filter_buffer image_filter_interlace image_filter_jpeg_quality image_filter_sharpen image_filter_transparency image_filter_webp_quality",
        Lost("images are sent as they are"),
    ),
    (
        "xslt_stylesheet xslt_param xslt_string_param xslt_types xslt_last_modified xml_entities",
        Lost("XML is sent as it is"),
    ),
    ("slice", NotNeeded("ranges of cached files are served without slices")),
    ("sub_filter sub_filter_once sub_filter_types sub_filter_last_modified", Read),
    ("ssi ssi_types ssi_last_modified ssi_min_file_chunk ssi_silent_errors ssi_value_length", Read),
    ("dav_methods dav_access dav_ext_methods create_full_put_path min_delete_depth", Read),
    (
        "secure_link secure_link_md5 secure_link_secret valid_referers referer_hash_bucket_size referer_hash_max_size",
        Read,
    ),
    ("mirror mirror_request_body", Lost("no copy of the request is sent")),
    ("stub_status status status_zone api", Read),
    ("empty_gif", Read),
    (
        "perl perl_modules perl_require perl_set js_import js_content js_set js_include js_path js_header_filter js_body_filter js_access",
        Lost("its code is not run"),
    ),
    (
        "userid userid_domain userid_expires userid_flags userid_mark userid_name userid_p3p userid_path userid_service",
        Lost("no cookie identifies the client"),
    ),
    (
        "geoip_country geoip_city geoip_org geoip_proxy geoip_proxy_recursive geoip2",
        Lost("the country of a client is not known"),
    ),
    (
        "memcached_pass memcached_bind memcached_buffer_size memcached_connect_timeout memcached_gzip_flag memcached_next_upstream memcached_next_upstream_timeout memcached_next_upstream_tries memcached_read_timeout memcached_send_timeout memcached_socket_keepalive",
        Lost("memcached is not a source of responses"),
    ),
    ("more_set_headers more_clear_headers more_set_input_headers more_clear_input_headers", Read),
    // Clients behind a proxy.
    ("set_real_ip_from real_ip_header real_ip_recursive", Read),
    // TLS and HTTP/2.
    (
        "ssl ssl_certificate ssl_certificate_key ssl_protocols ssl_ciphers ssl_client_certificate ssl_trusted_certificate ssl_verify_client ssl_crl ssl_early_data ssl_stapling_file ssl_reject_handshake",
        Read,
    ),
    (
        "ssl_session_cache ssl_session_timeout ssl_session_tickets ssl_session_ticket_key ssl_prefer_server_ciphers ssl_dhparam \
         ssl_ecdh_curve ssl_buffer_size ssl_conf_command ssl_verify_depth ssl_ocsp ssl_ocsp_cache ssl_ocsp_responder \
         ssl_handshake_timeout ssl_dyn_rec_enable ssl_dyn_rec_size_hi ssl_dyn_rec_size_lo ssl_dyn_rec_threshold \
         ssl_dyn_rec_timeout",
        TLS,
    ),
    (
        "ssl_stapling ssl_stapling_verify ssl_stapling_responder",
        NotNeeded(
            "authorities no longer run OCSP for public certificates; a file of a response is sent with `ocsp`",
        ),
    ),
    (
        "ssl_password_file",
        Lost(
            "keys with a password cannot be read; the server does not start until the key has none",
        ),
    ),
    (
        "http2 http2_push http2_push_preload http2_max_concurrent_streams http2_idle_timeout http2_max_requests http2_recv_timeout http2_max_field_size http2_max_header_size http2_chunk_size http2_recv_buffer_size http2_body_preread_size http2_max_concurrent_pushes http2_pool_size",
        Read,
    ),
    (
        "http3 http3_hq http3_max_concurrent_streams http3_stream_buffer_size quic_active_connection_id_limit quic_bpf quic_gso quic_host_key quic_retry",
        NotNeeded("listeners with TLS have HTTP/3, within limits of the server"),
    ),
    // Upstreams.
    ("zone state ntlm", NotNeeded("all workers share the state of upstreams")),
    ("least_conn ip_hash hash random sticky keepalive keepalive_conn", Read),
    (
        "queue least_time health_check match",
        Lost("it belongs to the commercial nginx; the upstream is chosen without it"),
    ),
    (
        "proxy_pass proxy_set_header proxy_hide_header proxy_pass_header proxy_redirect proxy_connect_timeout proxy_read_timeout \
         proxy_send_timeout proxy_buffering proxy_request_buffering proxy_http_version proxy_cache proxy_cache_valid proxy_cache_path \
         proxy_intercept_errors proxy_next_upstream proxy_next_upstream_tries proxy_next_upstream_timeout proxy_method proxy_set_body \
         proxy_pass_request_body proxy_pass_request_headers proxy_cookie_path proxy_cookie_domain proxy_cookie_flags \
         proxy_ssl_verify proxy_ssl_trusted_certificate proxy_ssl_name proxy_ssl_server_name proxy_ssl_certificate \
         proxy_ssl_certificate_key proxy_ignore_headers proxy_cache_key proxy_cache_bypass proxy_no_cache proxy_store proxy_limit_rate \
         proxy_bind proxy_ssl_password_file",
        Read,
    ),
    (
        "proxy_buffer_size proxy_buffers proxy_busy_buffers_size proxy_max_temp_file_size proxy_temp_file_write_size proxy_temp_path \
         fastcgi_buffer_size fastcgi_buffers fastcgi_busy_buffers_size fastcgi_max_temp_file_size fastcgi_temp_file_write_size \
         fastcgi_temp_path uwsgi_buffer_size uwsgi_buffers uwsgi_busy_buffers_size uwsgi_max_temp_file_size \
         uwsgi_temp_file_write_size uwsgi_temp_path scgi_buffer_size scgi_buffers scgi_busy_buffers_size \
         scgi_max_temp_file_size scgi_temp_file_write_size scgi_temp_path grpc_buffer_size",
        BUFFERS,
    ),
    (
        "proxy_socket_keepalive fastcgi_socket_keepalive uwsgi_socket_keepalive scgi_socket_keepalive grpc_socket_keepalive proxy_ssl_session_reuse proxy_ssl_protocols proxy_ssl_ciphers proxy_ssl_crl proxy_ssl_verify_depth proxy_ssl_conf_command grpc_ssl_protocols grpc_ssl_ciphers grpc_ssl_session_reuse grpc_ssl_verify_depth",
        TLS,
    ),
    ("proxy_store_access fastcgi_store fastcgi_store_access uwsgi_store scgi_store", STREAMED),
    (
        "proxy_ignore_client_abort fastcgi_ignore_client_abort uwsgi_ignore_client_abort scgi_ignore_client_abort proxy_force_ranges fastcgi_force_ranges uwsgi_force_ranges scgi_force_ranges proxy_headers_hash",
        NotNeeded("a request whose client has left ends; ranges of cached responses are served"),
    ),
    (
        "proxy_cache_lock proxy_cache_lock_age proxy_cache_lock_timeout proxy_cache_revalidate proxy_cache_background_update proxy_cache_convert_head proxy_cache_max_range_offset proxy_cache_methods proxy_cache_min_uses proxy_cache_purge",
        CACHE,
    ),
    (
        "proxy_cache_use_stale fastcgi_cache_use_stale uwsgi_cache_use_stale scgi_cache_use_stale",
        Read,
    ),
    (
        "fastcgi_pass fastcgi_param fastcgi_index fastcgi_split_path_info fastcgi_read_timeout fastcgi_connect_timeout fastcgi_send_timeout \
         fastcgi_keep_conn fastcgi_hide_header fastcgi_pass_header fastcgi_intercept_errors fastcgi_cache fastcgi_cache_valid fastcgi_cache_path \
         fastcgi_cache_key fastcgi_cache_bypass fastcgi_no_cache fastcgi_ignore_headers fastcgi_buffering fastcgi_request_buffering \
         fastcgi_pass_request_body fastcgi_pass_request_headers fastcgi_next_upstream fastcgi_next_upstream_tries fastcgi_next_upstream_timeout \
         fastcgi_catch_stderr fastcgi_limit_rate fastcgi_bind",
        Read,
    ),
    (
        "fastcgi_cache_lock fastcgi_cache_lock_age fastcgi_cache_lock_timeout fastcgi_cache_revalidate fastcgi_cache_background_update fastcgi_cache_methods fastcgi_cache_min_uses fastcgi_cache_max_range_offset fastcgi_cache_purge uwsgi_cache_lock uwsgi_cache_methods uwsgi_cache_min_uses scgi_cache_lock scgi_cache_methods scgi_cache_min_uses",
        NO_CGI_CACHE,
    ),
    (
        "uwsgi_pass uwsgi_param uwsgi_read_timeout uwsgi_connect_timeout uwsgi_send_timeout uwsgi_hide_header uwsgi_pass_header \
         uwsgi_intercept_errors uwsgi_cache uwsgi_cache_valid uwsgi_cache_path uwsgi_cache_key uwsgi_cache_bypass uwsgi_no_cache uwsgi_ignore_headers \
         uwsgi_buffering uwsgi_request_buffering uwsgi_pass_request_body uwsgi_pass_request_headers uwsgi_modifier1 uwsgi_modifier2 \
         uwsgi_next_upstream uwsgi_next_upstream_tries uwsgi_next_upstream_timeout uwsgi_limit_rate uwsgi_bind uwsgi_string \
         scgi_pass scgi_param scgi_read_timeout scgi_connect_timeout scgi_send_timeout scgi_hide_header scgi_pass_header \
         scgi_intercept_errors scgi_cache scgi_cache_valid scgi_cache_path scgi_cache_key scgi_cache_bypass scgi_no_cache scgi_ignore_headers scgi_buffering \
         scgi_request_buffering scgi_pass_request_body scgi_pass_request_headers scgi_next_upstream scgi_next_upstream_tries \
         scgi_next_upstream_timeout scgi_limit_rate scgi_bind",
        Read,
    ),
    (
        "grpc_pass grpc_set_header grpc_hide_header grpc_pass_header grpc_connect_timeout grpc_read_timeout grpc_send_timeout \
         grpc_intercept_errors grpc_next_upstream grpc_next_upstream_tries grpc_next_upstream_timeout grpc_ignore_headers \
         grpc_ssl_verify grpc_ssl_trusted_certificate grpc_ssl_name grpc_ssl_server_name grpc_ssl_certificate \
         grpc_ssl_certificate_key grpc_bind",
        Read,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_directive_stands_twice() {
        let mut names: Vec<&str> =
            DIRECTIVES.iter().flat_map(|(names, _)| names.split_ascii_whitespace()).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
        assert_eq!(fate("sendfile"), Some(SYSTEM));
        assert_eq!(fate("nonsense"), None);
    }
}
