//! The table of what the report counts: a row for each metric, in the order of the exposition.
//!
//! A row has the kind of the metric, its name, its unit if it has one, its help, and its values: where the report has them, and
//! the rule by which each adds up over servers. `(rule field)` is a value, `[label: rule field]` a list of names and values, and
//! `{ label: name = rule field, … }` a value for each name; `dry_run` is a further label. `beside` has the values of
//! `status.json` that are no metrics. Names follow the conventions of OpenTelemetry for HTTP servers; the unit ends them.

use std::hash::Hash;

use dunlin_telemetry::metrics::{Counts, Label, Route as RouteCounts, Series, named};

use crate::exposition::{Exposition, Form, Section, labels};
use crate::metric::{Group, Kind, Metric, Readable, Samples, Source, Unit, Value};
use crate::report::{
    Bandwidth, Certificate, Client, Component, Concurrency, FleetReport, ObjectStore, Rate,
    Replica, ReplicaSum, Report, Route, RouteLimits, Scripts, Upstream,
};
use crate::rules::{self, Keyed, Summed};

/// All rows.
static TABLE: [&dyn Section; 14] = [
    &SERIES,
    &PHASES,
    &CONNECTIONS,
    &CERTIFICATES,
    &CACHES,
    &SCRIPTS,
    &COMPONENTS,
    &UPSTREAMS,
    &OBJECT_STORES,
    &THROTTLES,
    &BANDWIDTHS,
    &RATES,
    &FLEET,
    &PROCESS,
];

/// Returns all metrics. `counts` are those of which the report was made.
pub fn metrics(report: &Report, counts: &Counts, form: Form) -> String {
    let mut out = Exposition::new(form);
    for section in TABLE {
        section.write(Source { report, counts }, &mut out);
    }
    out.end()
}

/// The rows of the server as a whole.
pub(crate) static OF_SERVER: [&Group<Report>; 3] = [&CONNECTIONS, &CACHES, &PROCESS];

/// `GROUP: Type by [fields] = entries, beside [rules]; rows`: the rows of one kind of entries, which these fields identify.
macro_rules! rows {
    (
        $group:ident: $type:ident $(by [$($key:ident),*])? = $entries:expr $(, beside [$($rule:ident $($field:ident).+),+])?;
        $($kind:ident $name:literal $($unit:ident)? $help:literal $samples:tt $($dry_run:ident)?;)+
    ) => {
        static $group: Group<$type> = Group {
            entries: $entries,
            metrics: &[$(Metric {
                name: $name,
                kind: Kind::$kind,
                unit: optional!(Unit::Plain $(, Unit::$unit)?),
                help: $help,
                samples: samples!($samples),
                dry_run: optional!(None $(, Some(|of| of.$dry_run))?),
            }),+],
            others: &[$($(|sum, of| rules::$rule(&mut sum.$($field).+, &of.$($field).+)),+)?],
        };
        $(entry!($type [$($key),*], |sum, of| $group.add(sum, of));)?
    };
}

macro_rules! entry {
    ($type:ident [], |$sum:ident, $of:ident| $add:expr) => {
        impl Summed for $type {
            fn add(&mut self, $of: &Self) {
                let $sum = self;
                $add;
            }
        }
    };
    ($type:ident [$($key:ident),+], $($add:tt)+) => {
        entry!($type [], $($add)+);

        impl Keyed for $type {
            fn key(&self) -> impl Hash + Eq {
                ($(&self.$key,)+)
            }
        }
    };
}

macro_rules! optional {
    ($default:expr) => {
        $default
    };
    ($default:expr, $given:expr) => {
        $given
    };
}

macro_rules! samples {
    (($rule:ident $($field:tt).+)) => {
        Samples { label: "", values: &[("", value!($rule $($field).+))] }
    };
    ([$label:ident: $rule:ident $($field:tt).+]) => {
        Samples { label: stringify!($label), values: &[("", value!($rule $($field).+))] }
    };
    ({ $label:ident: $($name:ident = $rule:ident $($field:tt).+),+ }) => {
        Samples {
            label: stringify!($label),
            values: &[$((stringify!($name), value!($rule $($field).+))),+],
        }
    };
}

macro_rules! value {
    ($rule:ident $($field:tt).+) => {
        Value {
            read: |of| of.$($field).+.reading(),
            sum: |sum, of| rules::$rule(&mut sum.$($field).+, &of.$($field).+),
        }
    };
}

/// `list: label = field, …`: the entries of a list of the report with their labels.
macro_rules! listed {
    ($list:ident: $($label:ident = $field:ident),+) => {
        |from| {
            let all = from.report.$list.iter();
            all.map(|of| (labels(&[$((stringify!($label), &of.$field)),+]), of)).collect()
        }
    };
}

rows! {
    SERIES: Series = |from| from.counts.series.iter().map(|of| (of_series(of), of)).collect();
    Histogram "http_server_request_duration" Seconds "Time from a request's head to the end of its response." (keep durations);
    Histogram "http_server_response_body_size" Bytes "Bytes of bodies that were sent." (keep sizes);
}

rows! {
    PHASES: RouteCounts = |from| Label::all().zip(&from.counts.routes).map(of_label).collect();
    Summary "dunlin_request_phase" Seconds "Time that requests spent in each phase." [phase: keep phases];
}

rows! {
    CONNECTIONS: Report = whole,
    beside [add requests.total, add requests.sent, add requests.status, add requests.method, add requests.protocol,
        histogram requests.latency, add routes, add clients];
    Gauge "dunlin_connections" "Open connections by state." [state: add connections.open];
    Gauge "dunlin_connections_limit" "Maximum of open connections." (add connections.max);
    Counter "dunlin_connections_accepted" "Accepted connections." (add connections.accepted);
    Counter "dunlin_connections_closed" "Connections closed because of limits."
        { limit: idlest = add connections.evicted, address = add connections.rejected };
    Counter "dunlin_tls_handshakes" "TLS handshakes by result."
        { result: full = add tls.full, resumed = add tls.resumed, failed = add tls.failed, late = add tls.late };
    Counter "dunlin_spans" "Spans of traces by result." { result: sent = add spans.0, lost = add spans.1 };
    Counter "dunlin_access_log_lines_lost" "Lines of the access log that were lost." (add log_lines_lost);
    Gauge "dunlin_tunnels" "Open tunnels: connections and streams with a protocol other than HTTP, such as WebSocket."
        (add tunnels.open);
    Counter "dunlin_tunnels_opened" "Tunnels that were opened." (add tunnels.opened);
    Counter "dunlin_tunnel" Bytes "Bytes through tunnels, from clients and to them."
        { direction: received = add tunnels.received, sent = add tunnels.sent };
}

rows! {
    CERTIFICATES: Certificate by [site, file] = listed!(certificates: dunlin_site = site, file = file),
    beside [add names, first error, earliest failed_at];
    Gauge "dunlin_tls_certificate_expiry_timestamp" Seconds "When a certificate expires." (earliest expires);
    Gauge "dunlin_tls_certificate_renewal_timestamp" Seconds "When a certificate is due for renewal." (earliest renewal);
    Gauge "dunlin_tls_certificate_next_try_timestamp" Seconds "When a failed renewal is retried." (earliest next_try);
    Gauge "dunlin_tls_certificate_failures" "Failed renewals since the last success." (add failures);
}

rows! {
    CACHES: Report = whole,
    beside [add cache.evictions, add cache.max_bytes, add responses.max_bytes];
    Counter "dunlin_cache_requests" "Lookups in the file cache by result."
        { result: hit = add cache.hits, miss = add cache.misses };
    Counter "dunlin_cache_response" Bytes "Bytes of files, by hit or miss of the file cache."
        { result: hit = add cache.hit_bytes, miss = add cache.miss_bytes };
    Counter "dunlin_cache_admissions" "Files that the file cache did not have, by its decision."
        { result: admitted = add cache.admitted, rejected = add cache.rejected };
    Counter "dunlin_cache_evictions" "Files that were removed from the file cache, by reason." [reason: add cache.eviction];
    Gauge "dunlin_cache_files" "Files in the cache." (add cache.files);
    Gauge "dunlin_cache" Bytes "Bytes in the cache." (add cache.bytes);
    Gauge "dunlin_cache_descriptors" "Descriptors that the cache keeps open." (add cache.descriptors);
    Counter "dunlin_response_cache_requests" "Requests on routes that cache responses, by result."
        [result: add responses.requests];
    Counter "dunlin_response_cache_admissions" "Responses that may be stored, by the decision of the cache."
        { result: admitted = add responses.stored, rejected = add responses.rejected };
    Counter "dunlin_response_cache_removals" "URLs whose responses were removed, by reason."
        { reason: room = add responses.evicted, purged = add responses.purged };
    Gauge "dunlin_response_cache_urls" "URLs with stored responses." (add responses.urls);
    Gauge "dunlin_response_cache" Bytes "Bytes of stored responses." (add responses.bytes);
    Gauge "dunlin_response_cache_in_flight" "Requests upstream whose responses may be stored." (add responses.in_flight);
    Gauge "dunlin_response_cache_in_flight" Bytes "Bytes of their bodies." (add responses.in_flight_bytes);
    Counter "dunlin_response_cache_disk_reads" "Responses and objects that were read from disk." (add responses.disk.read);
    Counter "dunlin_response_cache_disk_writes" "Responses and objects that were to be written to disk, by result."
        { result: written = add responses.disk.written, rejected = add responses.disk.rejected,
            failed = add responses.disk.failed };
    Counter "dunlin_response_cache_disk_removals" "URLs, objects and damaged files that were removed from disk, by reason."
        { reason: room = add responses.disk.evicted, damaged = add responses.disk.damaged };
    Gauge "dunlin_response_cache_disk_urls" "URLs with responses on disk, and objects." (add responses.disk.urls);
    Gauge "dunlin_response_cache_disk" Bytes "Bytes of the files." (add responses.disk.bytes);
    Gauge "dunlin_response_cache_disk_limit" Bytes "Maximum of the bytes of the files." (add responses.disk.max_bytes);
}

rows! {
    SCRIPTS: Scripts by [name, kind] = listed!(scripts: pool = name, kind = kind),
    beside [add longest];
    Gauge "dunlin_scripts_processes" "Processes of a pool of scripts." (add processes);
    Gauge "dunlin_scripts_processes_limit" "Maximum of processes of a pool of scripts." (add max);
    Gauge "dunlin_scripts_busy" "Requests that run in scripts." (add busy);
    Gauge "dunlin_scripts_waiting" "Requests that wait for a script." (add waiting);
}

rows! {
    COMPONENTS: Component by [name, kind] = listed!(components: component = name);
    Counter "dunlin_component_requests" "Requests for a component, by what handled them."
        { result: fresh = add fresh, reused = add reused, rejected = add rejected };
    Counter "dunlin_component_stops" "Requests whose instance was stopped, by reason." [reason: add stops];
    Gauge "dunlin_component_instances" "Instances that handle a request or are kept." (add live);
    Gauge "dunlin_component_memory_peak" Bytes "Largest memory of an instance." (add memory_peak);
    Counter "dunlin_component_compile" Seconds "Time that compilation took." (add compile_seconds);
    Counter "dunlin_component_swaps" "Versions of the file that replaced another." (add swaps);
    Gauge "dunlin_component_stale" "1 if the newest version of the file could not be loaded, else 0." (first error);
}

rows! {
    UPSTREAMS: Upstream by [site, route, name] = listed!(upstreams: dunlin_site = site, http_route = route, upstream = name),
    beside [add failing, first last_error, largest last_failure];
    Gauge "dunlin_upstream_tunnels" "Connections to an upstream with a protocol other than HTTP, such as WebSocket." (add tunnels);
    Gauge "dunlin_upstream_available" "1 if an upstream gets requests, else 0." (all is_available);
    Gauge "dunlin_upstream_in_flight" "Requests that an upstream works on." (add in_flight);
    Gauge "dunlin_upstream_waiting" "Requests that wait for a connection to an upstream." (add waiting);
    Counter "dunlin_upstream_requests" "Requests sent to an upstream." (add requests);
    Counter "dunlin_upstream_failures" "Attempts at an upstream without a response." (add failures);
    Counter "dunlin_upstream_connections" "Connections opened to an upstream." (add connections);
}

rows! {
    OBJECT_STORES: ObjectStore by [name] = listed!(object_stores: store = name);
    Gauge "dunlin_object_store_available" "1 if an object store responds, else 0." (all is_available);
    Counter "dunlin_object_store_requests" "Requests to an object store." { operation: get = add gets, list = add lists };
    Counter "dunlin_object_store_not_modified" "Requests that confirmed a cached object." (add not_modified);
    Counter "dunlin_object_store_errors" "Requests to an object store that failed." (add errors);
    Counter "dunlin_object_store_received" Bytes "Bytes of objects from an object store." (add bytes);
    Counter "dunlin_object_store_joined" "Requests that waited for the request of another client." (add joined);
    Counter "dunlin_object_store_stale" "Uses of a cached object that the store did not confirm in time." (add stale);
}

rows! {
    THROTTLES: Concurrency by [] = |from| {
        let of = |of| Some((of_limits(of), of.concurrency.as_ref()?));
        from.report.limits.iter().filter_map(of).collect()
    },
    beside [all dry_run];
    Gauge "dunlin_throttle_running" "Requests that run under a throttle." (add running);
    Gauge "dunlin_throttle_waiting" "Requests that wait in a throttle's queue." (add waiting);
    Counter "dunlin_throttle_requests" "Requests by the decision of a throttle, applied or in a dry run."
        { result: served = add served, queued = add queued, overdue = add overdue, rejected = add rejected,
            expired = add expired, left = add left } dry_run;
}

rows! {
    BANDWIDTHS: Bandwidth by [] = |from| {
        let of = |of| Some((of_limits(of), of.bandwidth.as_ref()?));
        from.report.limits.iter().filter_map(of).collect()
    },
    beside [all dry_run];
    Gauge "dunlin_bandwidth_sending" "Responses that share a bandwidth limit." (add sending);
    Counter "dunlin_bandwidth_sent" Bytes "Bytes of bodies that were sent." (add sent);
    Counter "dunlin_bandwidth_rejected" "Requests whose share of a ceiling was below the minimum." (add rejected) dry_run;
}

rows! {
    RATES: Rate by [rule] = |from| {
        let of = |limits: &RouteLimits, of: &Rate| {
            let (site, route) = (&limits.site, &limits.route);
            let dry_run = if of.dry_run { "true" } else { "false" };
            labels(&[
                ("dunlin_site", site),
                ("http_route", route),
                ("limit", &of.rule),
                ("dry_run", dry_run),
            ])
        };
        let limits = from.report.limits.iter();
        limits.flat_map(|all| all.rates.iter().map(move |one| (of(all, one), one))).collect()
    },
    beside [all dry_run];
    Counter "dunlin_limit_requests" "Requests by the decision of a rate limit."
        { result: passed = add passed, rejected = add rejected };
}

rows! {
    FLEET: FleetReport by [] = |from| from.report.fleet.iter().map(|fleet| (String::new(), fleet)).collect();
    Gauge "dunlin_shared_store_up" "1 if the store of `[shared]` is reachable, else 0." (all connected);
    Gauge "dunlin_shared_servers" "Servers that share the store and were seen lately." (add servers);
    Counter "dunlin_shared_exchanges" "Exchanges of rate limits with the store." (add exchanges);
    Counter "dunlin_shared_messages" "Messages of other servers." (add messages);
    Counter "dunlin_shared_store_losses" "Times that the store was lost." (add losses);
}

rows! {
    PROCESS: Report = whole,
    beside [add server.threads, largest server.time, add certificates, add scripts, add components, add upstreams,
        add object_stores, add limits, add fleet, add replicas];
    Counter "process_cpu" Seconds "CPU time of the server." (add process.cpu);
    Gauge "process_resident_memory" Bytes "Memory of the server." (add process.resident);
    Gauge "dunlin_memory_held" Bytes "Memory of requests and responses in progress." (add process.held);
    Gauge "dunlin_memory_limit" Bytes "Maximum of the memory of requests and responses in progress." (add process.held_limit);
    Counter "dunlin_memory_rejections" "Requests that were rejected because this memory was exhausted." (add process.rejected);
    Counter "dunlin_compressed_responses" "Responses that were compressed for one request each." (add process.compressed);
    Counter "dunlin_compressed_plain" Bytes "Their bodies before compression." (add process.plain_bytes);
    Counter "dunlin_compressed_coded" Bytes "Their bodies after compression." (add process.compressed_bytes);
    Counter "dunlin_compression_lowered" "Responses that were compressed at the fastest level because compression took much time." (add process.lowered);
    Counter "dunlin_compression_skipped" "Responses that were not compressed, or not to their end, because compression took too much time." (add process.uncompressed);
    Counter "dunlin_decoded_responses" "Responses that were decoded for clients that do not accept their coding." (add process.decoded);
    Counter "dunlin_dictionary_responses" "Responses that were compressed with a dictionary." (add process.dictionary_responses);
    Counter "dunlin_dictionary_plain" Bytes "The files of these responses." (add process.dictionary_plain_bytes);
    Counter "dunlin_dictionary_coded" Bytes "The bodies of these responses." (add process.dictionary_bytes);
    Gauge "dunlin_dictionaries" "Dictionaries that are kept: versions of files, and those for pages." (add process.dictionaries);
    Gauge "dunlin_dictionaries_size" Bytes "Size of the dictionaries that are kept." (add process.dictionaries_bytes);
    Gauge "process_open_fds" "Open descriptors." (add process.descriptors);
    Gauge "process_max_fds" "Maximum of open descriptors." (add process.descriptor_limit);
    Gauge "process_start_time" Seconds "When the server was started, since 1970." (smallest server.started);
    Gauge "dunlin_build_info" "The server's version." [version: keep server.version];
}

/// `Type by [fields]: rules;`: entries of the report that no metric shows.
macro_rules! unmeasured {
    ($($type:ident by [$($key:ident),*]: $($rule:ident $field:ident),+;)+) => {
        $(entry!($type [$($key),*], |sum, of| {
            $(rules::$rule(&mut sum.$field, &of.$field);)+
        });)+
    };
}

unmeasured! {
    Route by [site, route]: add requests, add failed, add sent, add took, histogram latency;
    Client by [address]: add requests, add sent, add took, largest slowest;
    RouteLimits by [site, route]: add concurrency, add bandwidth, add rates;
    ReplicaSum by []: first error, add each;
    Replica by [address]: earliest started, add age, add requests, first error;
}

/// Returns the labels of a series, named after the attributes of OpenTelemetry. An empty label is equal to an absent one.
fn of_series(series: &Series) -> String {
    let key = &series.key;
    let (site, route) = named(key.label);
    let version = key.version.as_str().trim_start_matches("HTTP/").trim_end_matches(".0");
    labels(&[
        ("http_request_method", key.method.as_str()),
        ("http_response_status_code", &key.status.to_string()),
        ("http_route", &route),
        ("dunlin_site", &site),
        ("network_protocol_version", if version == "1" { "1.0" } else { version }),
        ("url_scheme", if key.encrypted { "https" } else { "http" }),
    ])
}

fn whole(from: Source<'_>) -> Vec<(String, &Report)> {
    vec![(String::new(), from.report)]
}

fn of_label((label, counts): (Label, &RouteCounts)) -> (String, &RouteCounts) {
    let (site, route) = named(label);
    (of_route(&site, &route), counts)
}

fn of_route(site: &str, route: &str) -> String {
    labels(&[("dunlin_site", site), ("http_route", route)])
}

fn of_limits(limits: &RouteLimits) -> String {
    of_route(&limits.site, &limits.route)
}
