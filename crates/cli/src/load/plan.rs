//! Conversion of the options to a plan.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use dunlin_http::semantics::digest;
use dunlin_load::engine::Extras;
use dunlin_load::plan::{
    Arrivals, Choice, End, Model, Plan, Protocol, RequestShape, Reuse, Verify,
};
use dunlin_load::urls::{self, absolute, on_server};
use dunlin_load::verify::Reference;
use dunlin_load::{replay, time};

use super::{LoadArguments, fields};

/// Returns the plan that the options describe.
///
/// # Errors
/// An option is invalid, contradicts another one, or has no effect.
pub(super) fn read(arguments: &LoadArguments) -> Result<(Plan, Extras, Reference), String> {
    let LoadArguments { extent, model, request, check, .. } = arguments;
    let replay = replay(arguments)?;
    let urls = match &replay {
        Some(replay) => replay.urls.clone(),
        None => given_urls(arguments)?,
    };
    let (urls, password) = urls::without_password(urls)?;
    let body = body(arguments)?;
    let method = request
        .method
        .clone()
        .unwrap_or_else(|| if body.is_empty() { "GET" } else { "POST" }.to_owned());
    if [extent.connections, extent.threads, model.pipeline, request.streams].contains(&0) {
        return Err("--connections, --threads, --pipeline and --streams are at least 1".to_owned());
    }
    if request.split_body && body.is_empty() {
        return Err("--split-body does nothing without a body (--data or --body)".to_owned());
    }
    if request.split_body && model.pipeline > 1 {
        return Err("--split-body and --pipeline contradict each other".to_owned());
    }
    let choice = match &request.choose {
        _ if replay.is_some() => Choice::Replay {
            log: model.replay.clone().unwrap_or_default(),
            speed: model.replay_speed.unwrap_or(1.0),
        },
        Some(_) if urls.len() == 1 => return Err("--choose does nothing with one URL".to_owned()),
        Some(text) => choice(text)?,
        None => Choice::InOrder,
    };
    let mut fields =
        request.fields.iter().map(|text| field(text)).collect::<Result<Vec<_>, _>>()?;
    if let Some(password) = password
        && !fields::has(&fields, "authorization")
    {
        fields.push(("Authorization".to_owned(), password));
    }
    let dictionary = dictionary(request.dictionary.as_deref(), &mut fields)?;
    let closes = fields::check(&mut fields, request.http2 || request.http3, body.len())?;
    if closes && (model.requests_per_connection.is_some() || model.pipeline > 1) {
        return Err(
            "-H 'Connection: close' is --no-keepalive: one request on each connection".to_owned()
        );
    }
    let reuse = match (model.no_keepalive || closes, model.requests_per_connection) {
        (true, _) => Reuse::Never,
        (false, Some(0)) => return Err("--requests-per-connection is at least 1".to_owned()),
        (false, Some(count)) => Reuse::Requests(count),
        (false, None) if request.http10 || model.connection_rate.is_some() => Reuse::Never,
        (false, None) => Reuse::Kept,
    };
    if request.streams > 1 && reuse == Reuse::Never {
        return Err("--streams does nothing with one request on each connection".to_owned());
    }
    if request.early_data && reuse == Reuse::Kept {
        let what = "--early-data is for connections that are closed: write --no-keepalive, or --requests-per-connection";
        return Err(what.to_owned());
    }
    if model.pipeline > 1 && reuse == Reuse::Never {
        return Err("--pipeline does nothing with one request on each connection".to_owned());
    }
    if model.pipeline > 1 && model.think.is_some() {
        return Err("--pipeline and --think contradict each other".to_owned());
    }
    if model.modem.is_some() && model.pipeline > 1 {
        return Err("--modem and --pipeline contradict each other".to_owned());
    }
    let search = &arguments.search;
    if search.find_users && model.modem.is_none() {
        return Err("--find-users needs a pace: --modem KBIT/S".to_owned());
    }
    if search.find_rate
        && (search.p99.is_none() || model.rate.is_some() || model.connection_rate.is_some())
    {
        return Err("--find-rate needs --p99 TIME, and no --rate: it looks for one".to_owned());
    }
    let searches = search.find_users || search.find_rate;
    if !searches && (search.most.is_some() || search.precision.is_some()) {
        return Err("--most and --precision do nothing without a search".to_owned());
    }
    if search.precision.is_some_and(|share| !(0.001..=0.9).contains(&share))
        || search.most.is_some_and(|most| most.is_nan() || most < 1.0)
    {
        return Err("--precision is between 0.001 and 0.9, --most at least 1".to_owned());
    }
    if request.http3 && urls.first().is_some_and(|url| !url.starts_with("https://")) {
        return Err("--http3 needs https://".to_owned());
    }
    if request.sni.is_some() && urls.first().is_some_and(|url| !url.starts_with("https://")) {
        return Err("--sni does nothing without https://".to_owned());
    }
    if searches && extent.requests.is_some() {
        return Err(
            "a search tries levels for a --duration each, not for a number of requests".to_owned()
        );
    }
    let verify = match &check.verify {
        None => Verify::Status,
        Some(None) => Verify::FirstResponse,
        Some(Some(directory)) => Verify::Directory(directory.clone()),
    };
    let reference = match &verify {
        Verify::Directory(directory) => reference(directory, &urls)?,
        _ => Reference::default(),
    };
    let generators = arguments.machines.count()?;
    if extent.connections < generators || extent.requests.is_some_and(|n| n < generators.into()) {
        return Err(format!(
            "{generators} generators need at least {generators} connections (-c) and requests (-n)"
        ));
    }
    let plan = Plan {
        urls,
        choice,
        seed: extent.seed,
        protocol: match (request.http3, request.http2, request.http10) {
            (true, ..) => Protocol::Http3,
            (false, true, _) => Protocol::Http2,
            (false, false, true) => Protocol::Http10,
            (false, false, false) => Protocol::Http11,
        },
        connections: extent.connections,
        threads: extent.threads.min(extent.connections / generators),
        end: match (extent.requests, &extent.duration) {
            (Some(0), _) => return Err("--requests is at least 1".to_owned()),
            (Some(count), _) => End::Requests(count),
            (None, Some(text)) => End::Seconds(positive("--duration", text)?),
            (None, None) if replay.is_some() => {
                End::Requests(replay.as_ref().map_or(0, |r| r.due.len() as u64))
            }
            (None, None) if arguments.search.find_users => End::Seconds(8.0),
            (None, None) if arguments.search.find_rate => End::Seconds(2.0),
            (None, None) => End::Seconds(10.0),
        },
        limit_seconds: match (extent.requests, &extent.duration) {
            (Some(_), Some(text)) => Some(positive("--duration", text)?),
            _ => None,
        },
        warmup_seconds: seconds("--warmup", &extent.warmup)?,
        model: match &replay {
            Some(replay) => Model::OpenRequests(Arrivals::Constant { rate: replay.rate() }),
            None => load_model(arguments)?,
        },
        reuse,
        pipeline: model.pipeline,
        streams: request.streams,
        request: RequestShape {
            method,
            fields,
            body_bytes: body.len() as u64,
            body_sha256: None,
            split_body: request.split_body,
            no_delay: !request.no_nodelay,
        },
        timeout_seconds: positive("--timeout", &extent.timeout)?,
        verify,
        modem_bits_per_second: match model.modem {
            Some(kilobits) if kilobits > 0.0 => Some((kilobits * 1000.0) as u64),
            Some(_) => return Err("--modem is above 0".to_owned()),
            None => None,
        },
        source_addresses: model.source.clone(),
        insecure: request.insecure,
        early_data: request.early_data,
        server_name: request.sni.clone(),
        segment: arguments.machines.segment,
    };
    if let End::Requests(_) = plan.end
        && let Model::OpenRequests(Arrivals::Ramp { .. })
        | Model::OpenConnections(Arrivals::Ramp { .. }) = plan.model
    {
        return Err(
            "a ramp lasts for a --duration; it cannot end by a number of requests".to_owned()
        );
    }
    let (methods, due) =
        replay.map_or((Vec::new(), None), |replay| (replay.methods, Some(replay.due)));
    let statuses = check.expect_status.clone();
    let extras = Extras { body, dictionary, statuses, methods, replay: due };
    Ok((plan, extras, reference))
}

/// Returns the dictionary of the client, and adds the fields that name it.
fn dictionary(file: Option<&Path>, fields: &mut Vec<(String, String)>) -> Result<Vec<u8>, String> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let content = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    if content.is_empty() {
        return Err(format!("--dictionary {}: the file is empty", file.display()));
    }
    let hash = digest::base64(&dunlin_dictionary::sha256(&content));
    fields.push(("Available-Dictionary".to_owned(), format!(":{hash}:")));
    if !fields::has(fields, "accept-encoding") {
        fields.push(("Accept-Encoding".to_owned(), dunlin_dictionary::dcz::NAME.to_owned()));
    }
    Ok(content)
}

/// A log as requests.
struct Replayed {
    urls: Vec<String>,
    methods: Vec<String>,
    /// When each is due, in nanoseconds, and which of `urls` it is.
    due: Vec<(u64, u32)>,
}

impl Replayed {
    /// Requests per second on average.
    fn rate(&self) -> f64 {
        let seconds = self.due.last().map_or(0.0, |(due, _)| *due as f64 / 1e9);
        self.due.len() as f64 / seconds.max(1e-3)
    }
}

fn replay(arguments: &LoadArguments) -> Result<Option<Replayed>, String> {
    let options = &arguments.model;
    let Some(log) = &options.replay else {
        return match options.replay_speed {
            Some(_) => Err("--replay-speed does nothing without --replay".to_owned()),
            None => Ok(None),
        };
    };
    let speed = options.replay_speed.unwrap_or(1.0);
    if !speed.is_finite() || speed <= 0.0 {
        return Err("--replay-speed is above 0".to_owned());
    }
    let [base] = &arguments.urls[..] else {
        return Err("--replay needs one URL, which names the server".to_owned());
    };
    let base = absolute(base.clone());
    let bytes = std::fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let read = replay::read(&String::from_utf8_lossy(&bytes), speed)
        .map_err(|error| format!("{}: {error}", log.display()))?;
    if read.skipped > 0 {
        eprintln!(
            "dunlin: {}: {} lines are no requests and are left out",
            log.display(),
            read.skipped
        );
    }
    let mut known = HashMap::new();
    let (mut urls, mut methods, mut due) = (Vec::new(), Vec::new(), Vec::new());
    for entry in read.entries {
        let url = if entry.target.starts_with('/') {
            on_server(&base, &entry.target)
        } else {
            base.clone()
        };
        let index = *known.entry((entry.method.clone(), url.clone())).or_insert_with(|| {
            urls.push(url);
            methods.push(entry.method);
            urls.len() as u32 - 1
        });
        due.push((entry.offset, index));
    }
    Ok(Some(Replayed { urls, methods, due }))
}

fn given_urls(arguments: &LoadArguments) -> Result<Vec<String>, String> {
    let body = arguments.request.body.as_deref();
    let urls = match &arguments.urls_file {
        Some(file) if is_standard_input(file) && body.is_some_and(is_standard_input) => {
            return Err("--urls-file and --body cannot both be standard input".to_owned());
        }
        Some(file) => listed_urls(file, &arguments.urls)?,
        None => arguments.urls.clone(),
    };
    if urls.is_empty() {
        return Err("there is no URL to load\n\nUsage: dunlin load [OPTIONS] URL...\n\nFor all options and examples, run 'dunlin load --help'."
            .to_owned());
    }
    Ok(urls.into_iter().map(absolute).collect())
}

/// Returns the URLs of a file. A URL of the command line only names the server of those that are paths.
fn listed_urls(file: &Path, given: &[String]) -> Result<Vec<String>, String> {
    let base = match given {
        [] => None,
        [base] => Some(base.as_str()),
        _ => {
            return Err("--urls-file takes one URL, which names the server of its paths".to_owned());
        }
    };
    let text = String::from_utf8(read_input(file)?)
        .map_err(|_| format!("{}: is not UTF-8", file.display()))?;
    urls::listed(&text, base).map_err(|error| format!("{}:{error}", file.display()))
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new("-")
}

/// Reads a file, or standard input for `-`.
fn read_input(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = match is_standard_input(file) {
        true => std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes),
        false => std::fs::read(file),
    };
    read.map_err(|error| format!("{}: {error}", file.display()))
}

fn body(arguments: &LoadArguments) -> Result<Vec<u8>, String> {
    match (&arguments.request.data, &arguments.request.body) {
        (Some(text), _) => Ok(text.clone().into_bytes()),
        (None, Some(file)) => read_input(file),
        (None, None) => Ok(Vec::new()),
    }
}

fn reference(directory: &Path, urls: &[String]) -> Result<Reference, String> {
    let path = |url: &str| -> String {
        let start = url.find("://").map_or(0, |at| at + 3);
        let path = url[start..].find('/').map_or("/", |at| &url[start + at..]);
        path.split(['?', '#']).next().unwrap_or("/").to_owned()
    };
    let paths: Vec<String> = urls.iter().map(|url| path(url)).collect();
    Reference::of_directory(directory, paths.iter().map(String::as_str))
        .map_err(|(file, error)| format!("{}: {error}", file.display()))
}

fn load_model(arguments: &LoadArguments) -> Result<Model, String> {
    let options = &arguments.model;
    Ok(match (&options.rate, &options.connection_rate) {
        (Some(text), _) => Model::OpenRequests(arrivals("--rate", text)?),
        (None, Some(text)) => Model::OpenConnections(arrivals("--connection-rate", text)?),
        (None, None) => Model::Closed {
            think_seconds: options
                .think
                .as_ref()
                .map_or(Ok(0.0), |text| seconds("--think", text))?,
        },
    })
}

/// `1000`, `poisson:1000`, or `100:5000`.
fn arrivals(option: &str, text: &str) -> Result<Arrivals, String> {
    let rate = |text: &str| match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(rate),
        _ => Err(format!("{option} {text}: is not a rate; write 1000, poisson:1000 or 100:5000")),
    };
    let arrivals = match text.split_once(':') {
        None => Arrivals::Constant { rate: rate(text)? },
        Some(("poisson", text)) => Arrivals::Poisson { rate: rate(text)? },
        Some((from, to)) => Arrivals::Ramp { from: rate(from)?, to: rate(to)? },
    };
    match arrivals {
        Arrivals::Constant { rate }
        | Arrivals::Poisson { rate }
        | Arrivals::Ramp { from: 0.0, to: rate }
            if rate <= 0.0 =>
        {
            Err(format!("{option} {text}: the rate is above 0"))
        }
        arrivals => Ok(arrivals),
    }
}

fn choice(text: &str) -> Result<Choice, String> {
    match text.split_once(':') {
        None if text == "in-order" => Ok(Choice::InOrder),
        None if text == "random" => Ok(Choice::Random),
        Some(("zipf", exponent)) => match exponent.parse::<f64>() {
            Ok(exponent) if exponent > 0.0 && exponent.is_finite() => Ok(Choice::Zipf { exponent }),
            _ => Err(format!("--choose {text}: the exponent is a number above 0")),
        },
        _ => Err(format!("--choose {text}: is not one of in-order, random, zipf:EXPONENT")),
    }
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once(':').ok_or_else(|| format!("--header {text}: is not `Name: value`"))?;
    let (name, value) = (name.trim(), value.trim());
    let sound = dunlin_http::semantics::is_token(name.as_bytes())
        && dunlin_http::semantics::is_field_value(value.as_bytes());
    if !sound {
        return Err(format!("--header {text}: is not `Name: value`"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Returns a latency limit in milliseconds.
pub(super) fn limit(option: &str, text: &str) -> Result<f64, String> {
    Ok(positive(option, text)? * 1e3)
}

fn positive(option: &str, text: &str) -> Result<f64, String> {
    match seconds(option, text)? {
        time if time > 0.0 => Ok(time),
        _ => Err(format!("{option} is above 0")),
    }
}

/// Returns a time, such as `10s`.
fn seconds(option: &str, text: &str) -> Result<f64, String> {
    time::seconds(text).map_err(|error| format!("{option} {text}: {error}"))
}
