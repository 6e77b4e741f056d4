//! The metrics in the text format of Prometheus (0.0.4) and in OpenMetrics 1.0. Names follow the conventions of
//! OpenTelemetry for HTTP servers.

use std::fmt::{Display, Write};

use dunlin_telemetry::metrics::{BOUNDS, Counts, Histogram, Label, SIZES, Series, named};

use super::certificates::Certificate;
use super::object_stores::ObjectStore;
use super::report::{FleetReport, Report, Upstream};
use crate::component::Component;

/// A text format. The two differ in the names of counters and at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Prometheus,
    OpenMetrics,
}

impl Form {
    /// Returns the format that the client prefers.
    pub(super) fn of(accept: Option<&[u8]>) -> Self {
        let wanted = b"application/openmetrics-text";
        let accepted = accept.is_some_and(|types| memchr::memmem::find(types, wanted).is_some());
        if accepted { Self::OpenMetrics } else { Self::Prometheus }
    }

    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns all metrics.
pub(super) fn render(report: &Report, counts: &Counts, form: Form) -> String {
    let mut out = Exposition { text: String::with_capacity(16 * 1024), form };
    out.requests(counts);
    out.connections(report);
    out.tunnels(report);
    out.certificates(report);
    out.cache(report);
    out.responses(report);
    out.scripts(report);
    out.components(report);
    out.upstreams(report);
    out.object_stores(report);
    out.limits(report);
    out.fleet(report);
    out.process(report);
    if form == Form::OpenMetrics {
        out.text.push_str("# EOF\n");
    }
    out.text
}

struct Exposition {
    text: String,
    form: Form,
}

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($arguments:tt)*) => { let _ = writeln!($out.text, $($arguments)*); };
}

impl Exposition {
    fn requests(&mut self, counts: &Counts) {
        let name = "http_server_request_duration_seconds";
        self.family(name, "histogram", "Time from a request's head to the end of its response.");
        let bounds = BOUNDS.map(|bound| bound as f64 / 1e9);
        for series in &counts.series {
            let sum = series.durations.sum as f64 / 1e9;
            self.histogram(name, &labels(series), &series.durations, (&bounds, sum));
        }
        let name = "http_server_response_body_size_bytes";
        self.family(name, "histogram", "Bytes of bodies that were sent.");
        let bounds = SIZES.map(|bound| bound as f64);
        for series in &counts.series {
            self.histogram(name, &labels(series), &series.sizes, (&bounds, series.sizes.sum));
        }
        let name = "dunlin_request_phase_seconds";
        self.family(name, "summary", "Time that requests spent in each phase.");
        for (label, route) in Label::all().zip(&counts.routes) {
            let (site, path) = named(label);
            let at = format!("dunlin_site=\"{}\",http_route=\"{}\"", escape(&site), escape(&path));
            for (phase, requests, nanos) in route.phases.iter() {
                let sum = nanos as f64 / 1e9;
                line!(self, "{name}_sum{{{at},phase=\"{phase}\"}} {sum}");
                line!(self, "{name}_count{{{at},phase=\"{phase}\"}} {requests}");
            }
        }
    }

    /// Writes a histogram, with bounds and sum in the unit of its name.
    fn histogram<const BUCKETS: usize>(
        &mut self,
        name: &str,
        labels: &str,
        histogram: &Histogram<BUCKETS>,
        (bounds, sum): (&[f64], impl Display),
    ) {
        let mut below = 0;
        for (count, bound) in histogram.buckets.iter().zip(bounds) {
            below += count;
            line!(self, "{name}_bucket{{{labels},le=\"{bound:?}\"}} {below}");
        }
        let count = histogram.count;
        line!(self, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
        line!(self, "{name}_sum{{{labels}}} {sum}");
        line!(self, "{name}_count{{{labels}}} {count}");
    }

    fn connections(&mut self, report: &Report) {
        let name = "dunlin_connections";
        self.family(name, "gauge", "Open connections by state.");
        for (state, count) in &report.connections.open {
            line!(self, "{name}{{state=\"{state}\"}} {count}");
        }
        self.gauge(
            "dunlin_connections_limit",
            "Maximum of open connections.",
            report.connections.max,
        );
        let help = "Accepted connections.";
        self.counter("dunlin_connections_accepted", help, report.connections.accepted);
        let name = "dunlin_connections_closed";
        self.family(name, "counter", "Connections closed because of limits.");
        let (evicted, rejected) = (report.connections.evicted, report.connections.rejected);
        line!(self, "{name}_total{{limit=\"idlest\"}} {evicted}");
        line!(self, "{name}_total{{limit=\"address\"}} {rejected}");
        let tls = &report.tls;
        let name = "dunlin_tls_handshakes";
        self.family(name, "counter", "TLS handshakes by result.");
        for (result, count) in [
            ("full", tls.full),
            ("resumed", tls.resumed),
            ("failed", tls.failed),
            ("late", tls.late),
        ] {
            line!(self, "{name}_total{{result=\"{result}\"}} {count}");
        }
        let name = "dunlin_spans";
        self.family(name, "counter", "Spans of traces by result.");
        line!(self, "{name}_total{{result=\"sent\"}} {}", report.spans.0);
        line!(self, "{name}_total{{result=\"lost\"}} {}", report.spans.1);
        let help = "Lines of the access log that were lost.";
        self.counter("dunlin_access_log_lines_lost", help, report.log_lines_lost);
    }

    fn tunnels(&mut self, report: &Report) {
        let tunnels = &report.tunnels;
        let help = "Open tunnels: connections and streams by another protocol than HTTP, such as WebSocket.";
        self.gauge("dunlin_tunnels", help, tunnels.open);
        self.counter("dunlin_tunnels_opened", "Tunnels that were opened.", tunnels.opened);
        let name = "dunlin_tunnel_bytes";
        self.family(name, "counter", "Bytes through tunnels, from clients and to them.");
        line!(self, "{name}_total{{direction=\"received\"}} {}", tunnels.received);
        line!(self, "{name}_total{{direction=\"sent\"}} {}", tunnels.sent);
    }

    fn certificates(&mut self, report: &Report) {
        type Of = fn(&Certificate) -> Option<f64>;
        let families: [(&str, &str, Of); 4] = [
            ("expiry_timestamp_seconds", "When a certificate expires.", |of| of.expires),
            ("renewal_timestamp_seconds", "When a certificate is due for renewal.", |of| {
                of.renewal
            }),
            ("next_try_timestamp_seconds", "When a failed renewal is retried.", |of| of.next_try),
            ("failures", "Failed renewals since the last success.", |of| Some(of.failures as f64)),
        ];
        for (name, help, of) in families {
            let name = format!("dunlin_tls_certificate_{name}");
            self.family(&name, "gauge", help);
            for certificate in &report.certificates {
                let Some(value) = of(certificate) else { continue };
                let (site, file) = (escape(&certificate.site), escape(&certificate.file));
                line!(self, "{name}{{dunlin_site=\"{site}\",file=\"{file}\"}} {value}");
            }
        }
    }

    fn cache(&mut self, report: &Report) {
        let cache = &report.cache;
        let name = "dunlin_cache_requests";
        self.family(name, "counter", "Lookups in the file cache by result.");
        line!(self, "{name}_total{{result=\"hit\"}} {}", cache.hits);
        line!(self, "{name}_total{{result=\"miss\"}} {}", cache.misses);
        let name = "dunlin_cache_response_bytes";
        self.family(name, "counter", "Bytes of files by whether the file cache had them.");
        line!(self, "{name}_total{{result=\"hit\"}} {}", cache.hit_bytes);
        line!(self, "{name}_total{{result=\"miss\"}} {}", cache.miss_bytes);
        let name = "dunlin_cache_admissions";
        self.family(name, "counter", "Files that the file cache did not have, by its decision.");
        line!(self, "{name}_total{{result=\"admitted\"}} {}", cache.admitted);
        line!(self, "{name}_total{{result=\"rejected\"}} {}", cache.rejected);
        let name = "dunlin_cache_evictions";
        self.family(name, "counter", "Files that were removed from the file cache, by reason.");
        for (reason, count) in &cache.eviction {
            line!(self, "{name}_total{{reason=\"{reason}\"}} {count}");
        }
        self.gauge("dunlin_cache_files", "Files in the cache.", cache.files);
        self.gauge("dunlin_cache_bytes", "Bytes in the cache.", cache.bytes);
        let help = "Descriptors that the cache keeps open.";
        self.gauge("dunlin_cache_descriptors", help, cache.descriptors);
    }

    fn responses(&mut self, report: &Report) {
        let cache = &report.responses;
        let name = "dunlin_response_cache_requests";
        self.family(name, "counter", "Requests on routes that cache responses, by result.");
        for (result, count) in &cache.requests {
            line!(self, "{name}_total{{result=\"{result}\"}} {count}");
        }
        let name = "dunlin_response_cache_admissions";
        self.family(name, "counter", "Responses that may be stored, by the decision of the cache.");
        line!(self, "{name}_total{{result=\"admitted\"}} {}", cache.stored);
        line!(self, "{name}_total{{result=\"rejected\"}} {}", cache.rejected);
        let name = "dunlin_response_cache_removals";
        self.family(name, "counter", "URLs whose responses were removed, by reason.");
        line!(self, "{name}_total{{reason=\"room\"}} {}", cache.evicted);
        line!(self, "{name}_total{{reason=\"purged\"}} {}", cache.purged);
        self.gauge("dunlin_response_cache_urls", "URLs with stored responses.", cache.urls);
        self.gauge("dunlin_response_cache_bytes", "Bytes of stored responses.", cache.bytes);
        let help = "Requests upstream whose responses may be stored.";
        self.gauge("dunlin_response_cache_in_flight", help, cache.in_flight);
        let help = "Bytes of their bodies.";
        self.gauge("dunlin_response_cache_in_flight_bytes", help, cache.in_flight_bytes);
        self.responses_on_disk(&cache.disk);
    }

    fn responses_on_disk(&mut self, disk: &super::responses::Disk) {
        let name = "dunlin_response_cache_disk";
        let help = "Responses and objects that were read from disk.";
        self.family(&format!("{name}_reads"), "counter", help);
        line!(self, "{name}_reads_total {}", disk.read);
        let help = "Responses and objects that were to be written to disk, by result.";
        self.family(&format!("{name}_writes"), "counter", help);
        for (result, count) in
            [("written", disk.written), ("rejected", disk.rejected), ("failed", disk.failed)]
        {
            line!(self, "{name}_writes_total{{result=\"{result}\"}} {count}");
        }
        let help = "URLs, objects and damaged files that were removed from disk, by reason.";
        self.family(&format!("{name}_removals"), "counter", help);
        for (reason, count) in [("room", disk.evicted), ("damaged", disk.damaged)] {
            line!(self, "{name}_removals_total{{reason=\"{reason}\"}} {count}");
        }
        self.gauge(&format!("{name}_urls"), "URLs with responses on disk, and objects.", disk.urls);
        self.gauge(&format!("{name}_bytes"), "Bytes of the files.", disk.bytes);
        let help = "Maximum of the bytes of the files.";
        self.gauge(&format!("{name}_limit_bytes"), help, disk.max_bytes);
    }

    fn scripts(&mut self, report: &Report) {
        type Of = fn(&super::report::Scripts) -> u64;
        let families: [(&str, &str, Of); 4] = [
            ("processes", "Processes of a pool of scripts.", |pool| pool.processes),
            ("processes_limit", "Maximum of processes of a pool of scripts.", |pool| pool.max),
            ("busy", "Requests that run in scripts.", |pool| pool.busy),
            ("waiting", "Requests that wait for a script.", |pool| pool.waiting),
        ];
        for (name, help, of) in families {
            let name = format!("dunlin_scripts_{name}");
            self.family(&name, "gauge", help);
            for pool in &report.scripts {
                let (label, kind, value) = (escape(&pool.name), &pool.kind, of(pool));
                line!(self, "{name}{{pool=\"{label}\",kind=\"{kind}\"}} {value}");
            }
        }
    }

    fn components(&mut self, report: &Report) {
        type Of = fn(&Component) -> f64;
        let name = "dunlin_component_requests";
        self.family(name, "counter", "Requests for a component, by what handled them.");
        for component in &report.components {
            let at = escape(&component.name);
            for (result, count) in [
                ("fresh", component.fresh),
                ("reused", component.reused),
                ("rejected", component.rejected),
            ] {
                line!(self, "{name}_total{{component=\"{at}\",result=\"{result}\"}} {count}");
            }
        }
        let name = "dunlin_component_stops";
        self.family(name, "counter", "Requests whose instance was stopped, by reason.");
        for component in &report.components {
            let at = escape(&component.name);
            for (reason, count) in &component.stops {
                line!(self, "{name}_total{{component=\"{at}\",reason=\"{reason}\"}} {count}");
            }
        }
        let families: [(&str, &str, &str, Of); 5] = [
            ("instances", "gauge", "Instances that handle a request or are kept.", |of| {
                of.live as f64
            }),
            ("memory_peak_bytes", "gauge", "Largest memory of an instance.", |of| {
                of.memory_peak as f64
            }),
            ("compile_seconds", "counter", "Time that compilation took.", |of| of.compile_seconds),
            ("swaps", "counter", "Versions of the file that replaced another.", |of| {
                of.swaps as f64
            }),
            (
                "stale",
                "gauge",
                "Whether the newest version of the file could not be loaded.",
                |of| f64::from(of.error.is_some()),
            ),
        ];
        for (name, kind, help, of) in families {
            let name = format!("dunlin_component_{name}");
            self.family(&name, kind, help);
            let suffix = if kind == "counter" { "_total" } else { "" };
            for component in &report.components {
                let (at, value) = (escape(&component.name), of(component));
                line!(self, "{name}{suffix}{{component=\"{at}\"}} {value}");
            }
        }
    }

    fn upstreams(&mut self, report: &Report) {
        type Of = fn(&Upstream) -> u64;
        let families: [(&str, &str, &str, Of); 7] = [
            (
                "tunnels",
                "gauge",
                "Connections to an upstream by another protocol than HTTP, such as WebSocket.",
                |of| of.tunnels,
            ),
            ("available", "gauge", "Whether an upstream gets requests.", |of| {
                of.is_available.into()
            }),
            ("in_flight", "gauge", "Requests that an upstream works on.", |of| of.in_flight),
            ("waiting", "gauge", "Requests that wait for a connection to an upstream.", |of| {
                of.waiting
            }),
            ("requests", "counter", "Requests sent to an upstream.", |of| of.requests),
            ("failures", "counter", "Attempts at an upstream without a response.", |of| {
                of.failures
            }),
            ("connections", "counter", "Connections opened to an upstream.", |of| of.connections),
        ];
        for (name, kind, help, of) in families {
            let name = format!("dunlin_upstream_{name}");
            self.family(&name, kind, help);
            let suffix = if kind == "counter" { "_total" } else { "" };
            for upstream in &report.upstreams {
                let (site, route) = (escape(&upstream.site), escape(&upstream.route));
                let (label, value) = (escape(&upstream.name), of(upstream));
                line!(
                    self,
                    "{name}{suffix}{{dunlin_site=\"{site}\",http_route=\"{route}\",upstream=\"{label}\"}} {value}"
                );
            }
        }
    }

    fn fleet(&mut self, report: &Report) {
        let fleet = report.fleet.as_ref();
        let values = |fleet: &FleetReport| {
            [
                u64::from(fleet.connected),
                fleet.servers,
                fleet.exchanges,
                fleet.messages,
                fleet.losses,
            ]
        };
        let names = [
            ("dunlin_shared_store_up", "gauge", "Whether the store of `[shared]` is reachable."),
            (
                "dunlin_shared_servers",
                "gauge",
                "Servers that share the store and were seen lately.",
            ),
            ("dunlin_shared_exchanges", "counter", "Exchanges of rate limits with the store."),
            ("dunlin_shared_messages", "counter", "Messages of other servers."),
            ("dunlin_shared_store_losses", "counter", "Times that the store was lost."),
        ];
        for (index, (name, kind, help)) in names.into_iter().enumerate() {
            self.family(name, kind, help);
            let total = if kind == "counter" { "_total" } else { "" };
            if let Some(value) = fleet.map(values).as_ref().and_then(|values| values.get(index)) {
                line!(self, "{name}{total} {value}");
            }
        }
    }

    fn object_stores(&mut self, report: &Report) {
        let stores = || report.object_stores.iter().map(|of| (escape(&of.name), of));
        let name = "dunlin_object_store_available";
        self.family(name, "gauge", "Whether an object store responds.");
        for (store, of) in stores() {
            line!(self, "{name}{{store=\"{store}\"}} {}", u8::from(of.is_available));
        }
        let name = "dunlin_object_store_requests";
        self.family(name, "counter", "Requests to an object store.");
        for (store, of) in stores() {
            for (operation, count) in [("get", of.gets), ("list", of.lists)] {
                line!(self, "{name}_total{{store=\"{store}\",operation=\"{operation}\"}} {count}");
            }
        }
        type Of = fn(&ObjectStore) -> u64;
        let families: [(&str, &str, Of); 5] = [
            ("not_modified", "Requests that confirmed a cached object.", |of| of.not_modified),
            ("errors", "Requests to an object store that failed.", |of| of.errors),
            ("received_bytes", "Bytes of objects from an object store.", |of| of.bytes),
            ("joined", "Requests that waited for the request of another client.", |of| of.joined),
            ("stale", "Uses of a cached object that the store did not confirm in time.", |of| {
                of.stale
            }),
        ];
        for (name, help, value) in families {
            let name = format!("dunlin_object_store_{name}");
            self.family(&name, "counter", help);
            for (store, of) in stores() {
                line!(self, "{name}_total{{store=\"{store}\"}} {}", value(of));
            }
        }
    }

    fn limits(&mut self, report: &Report) {
        let routes = || {
            report.limits.iter().map(|limits| {
                let (site, route) = (escape(&limits.site), escape(&limits.route));
                (format!("dunlin_site=\"{site}\",http_route=\"{route}\""), limits)
            })
        };
        let throttles = || routes().filter_map(|(at, of)| Some((at, of.concurrency.as_ref()?)));
        self.family("dunlin_throttle_running", "gauge", "Requests that run under a throttle.");
        for (at, throttle) in throttles() {
            line!(self, "dunlin_throttle_running{{{at}}} {}", throttle.running);
        }
        self.family(
            "dunlin_throttle_waiting",
            "gauge",
            "Requests that wait in a throttle's queue.",
        );
        for (at, throttle) in throttles() {
            line!(self, "dunlin_throttle_waiting{{{at}}} {}", throttle.waiting);
        }
        let name = "dunlin_throttle_requests";
        let help = "Requests by the decision of a throttle, applied or in a dry run.";
        self.family(name, "counter", help);
        for (at, of) in throttles() {
            let results = [
                ("served", of.served),
                ("queued", of.queued),
                ("overdue", of.overdue),
                ("rejected", of.rejected),
                ("expired", of.expired),
                ("left", of.left),
            ];
            for (result, count) in results {
                let dry_run = of.dry_run;
                line!(
                    self,
                    "{name}_total{{{at},result=\"{result}\",dry_run=\"{dry_run}\"}} {count}"
                );
            }
        }
        let bandwidths = || routes().filter_map(|(at, of)| Some((at, of.bandwidth.as_ref()?)));
        self.family("dunlin_bandwidth_sending", "gauge", "Responses that share a bandwidth limit.");
        for (at, of) in bandwidths() {
            line!(self, "dunlin_bandwidth_sending{{{at}}} {}", of.sending);
        }
        let help = "Bytes of bodies that were sent.";
        self.family("dunlin_bandwidth_sent_bytes", "counter", help);
        for (at, of) in bandwidths() {
            line!(self, "dunlin_bandwidth_sent_bytes_total{{{at}}} {}", of.sent);
        }
        let help = "Requests whose share of a ceiling was below the minimum.";
        self.family("dunlin_bandwidth_rejected", "counter", help);
        for (at, of) in bandwidths() {
            let (dry_run, rejected) = (of.dry_run, of.rejected);
            line!(self, "dunlin_bandwidth_rejected_total{{{at},dry_run=\"{dry_run}\"}} {rejected}");
        }
        let name = "dunlin_limit_requests";
        self.family(name, "counter", "Requests by the decision of a rate limit.");
        for (at, of) in routes() {
            for rate in &of.rates {
                let at =
                    format!("{at},limit=\"{}\",dry_run=\"{}\"", escape(&rate.rule), rate.dry_run);
                line!(self, "{name}_total{{{at},result=\"passed\"}} {}", rate.passed);
                line!(self, "{name}_total{{{at},result=\"rejected\"}} {}", rate.rejected);
            }
        }
    }

    fn process(&mut self, report: &Report) {
        let process = &report.process;
        let help = "CPU time of the server.";
        self.counter("process_cpu_seconds", help, process.cpu);
        self.gauge("process_resident_memory_bytes", "Memory of the server.", process.resident);
        let help = "Memory of requests and responses on their way.";
        self.gauge("dunlin_memory_held_bytes", help, process.held);
        let help = "Maximum of the memory of requests and responses on their way.";
        self.gauge("dunlin_memory_limit_bytes", help, process.held_limit);
        let help = "Requests that were rejected because this memory was exhausted.";
        self.counter("dunlin_memory_rejections", help, process.rejected);
        self.gauge("process_open_fds", "Open descriptors.", process.descriptors);
        self.gauge("process_max_fds", "Maximum of open descriptors.", process.descriptor_limit);
        let help = "When the server was started, since 1970.";
        self.gauge("process_start_time_seconds", help, report.server.started);
        let name = "dunlin_build_info";
        self.family(name, "gauge", "The server's version.");
        line!(self, "{name}{{version=\"{}\"}} 1", report.server.version);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        line!(self, "{name}_total {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        line!(self, "{name} {value}");
    }

    /// Writes the head of a counter. In OpenMetrics its name lacks the suffix `_total` of the samples.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let total = kind == "counter" && self.form == Form::Prometheus;
        let suffix = if total { "_total" } else { "" };
        line!(self, "# HELP {name}{suffix} {help}");
        line!(self, "# TYPE {name}{suffix} {kind}");
    }
}

/// Returns the labels, named after the attributes of OpenTelemetry. An empty label is equal to an absent one.
fn labels(series: &Series) -> String {
    let key = &series.key;
    let (site, route) = named(key.label);
    let version = key.version.as_str().trim_start_matches("HTTP/").trim_end_matches(".0");
    let version = if version == "1" { "1.0" } else { version };
    format!(
        "http_request_method=\"{}\",http_response_status_code=\"{}\",http_route=\"{}\",\
         dunlin_site=\"{}\",network_protocol_version=\"{version}\",url_scheme=\"{}\"",
        key.method.as_str(),
        key.status,
        escape(&route),
        escape(&site),
        if key.encrypted { "https" } else { "http" },
    )
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
