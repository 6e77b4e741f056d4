//! Values that have more than one form.

use std::fmt;
use std::marker::PhantomData;

use dunlin_http::semantics::ContentCoding;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::file::{
    AccessLogForm, AccessLogTable, AcmeDirectories, AcmeDirectory, Auth, AuthTable, CodingName,
    Codings, Cors, CorsTable, DavTable, ErrorPageTable, Hsts, HstsTable, OneOrMany, PageStatus,
    ProxyTable, ProxyTarget, ProxyTargets, RateLimitTable, RateLimits, RecordFormatName,
    RecordRules, RecordsTable, RedirectHttps, RedirectTable, Retry, RetryTable, RouteCache,
    RouteCacheTable, RouteDav, RouteDictionary, RouteDictionaryTable, RouteLogValue, RouteSsi,
    RouteStatus, RouteStatusTable, SetField, SsiTable, StatusRange, Statuses, StickyTable,
    SubstituteTable, Substitutions, ValueTest,
};
use super::spanned::Spanned;
use super::units::DurationValue;

/// A value with more than one form. Each form has its own error texts, which an untagged enum would lose.
trait Forms: Sized {
    const EXPECTED: &'static str;

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Err(E::invalid_type(serde::de::Unexpected::Str(text), &Self::EXPECTED))
    }

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Err(E::invalid_type(serde::de::Unexpected::Bool(value), &Self::EXPECTED))
    }

    fn from_number<E: Error>(value: i64) -> Result<Self, E> {
        Err(E::invalid_type(serde::de::Unexpected::Signed(value), &Self::EXPECTED))
    }

    fn from_map<'de, A: MapAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(A::Error::invalid_type(serde::de::Unexpected::Map, &Self::EXPECTED))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &Self::EXPECTED))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FormsVisitor(PhantomData))
    }
}

struct FormsVisitor<T>(PhantomData<T>);

impl<'de, T: Forms> Visitor<'de> for FormsVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_str(text)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        T::from_bool(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        T::from_number(value)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::from_map(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::from_seq(list)
    }
}

macro_rules! deserialize_forms {
    ($($type:ty),*) => {
        $(impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::read(deserializer)
            }
        })*
    };
}

deserialize_forms!(
    AccessLogForm,
    AcmeDirectories,
    AcmeDirectory,
    Auth,
    Cors,
    RouteCache,
    RouteDav,
    RouteDictionary,
    RouteStatus,
    RouteSsi,
    ErrorPageTable,
    PageStatus,
    SetField,
    StatusRange,
    Substitutions,
    RecordRules,
    RateLimits,
    Codings,
    OneOrMany<String>,
    RouteLogValue,
    Statuses,
    ValueTest,
    Hsts,
    RedirectHttps,
    RedirectTable,
    ProxyTable,
    ProxyTargets,
    ProxyTarget,
    Retry,
    StickyTable
);

impl Forms for RedirectTable {
    const EXPECTED: &'static str =
        "a path or URL, or a table such as { to = \"/new\", status = 301 }";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self { to: Spanned::detached(text.to_owned()), status: None })
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        // The derived implementation, not the trait's.
        Self::deserialize(MapAccessDeserializer::new(map))
    }
}

impl Forms for ProxyTable {
    const EXPECTED: &'static str =
        "a URL, a list of URLs, or a table such as { to = \"http://127.0.0.1:3000\" }";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        ProxyTargets::from_str(text).map(Self::to)
    }

    fn from_seq<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        ProxyTargets::from_seq(list).map(Self::to)
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        // The derived implementation, not the trait's.
        Self::deserialize(MapAccessDeserializer::new(map))
    }
}

impl Forms for ProxyTargets {
    const EXPECTED: &'static str = "a URL or a list of URLs";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self(vec![ProxyTarget::at(text.to_owned())]))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut upstreams = Vec::new();
        while let Some(Spanned { value, span }) = list.next_element::<Spanned<ProxyTarget>>()? {
            let mut upstream: ProxyTarget = value;
            upstream.url.span = upstream.url.span.take().or(span);
            upstreams.push(upstream);
        }
        Ok(Self(upstreams))
    }
}

impl Forms for ProxyTarget {
    const EXPECTED: &'static str =
        "a URL or a table such as { url = \"http://127.0.0.1:3000\", weight = 2 }";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self::at(text.to_owned()))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        // The derived implementation, not the trait's.
        Self::deserialize(MapAccessDeserializer::new(map))
    }
}

impl Forms for AcmeDirectories {
    const EXPECTED: &'static str = "a URL or a list of URLs";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self(vec![AcmeDirectory::at(text.to_owned())]))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut directories = Vec::new();
        while let Some(Spanned { value, span }) = list.next_element::<Spanned<AcmeDirectory>>()? {
            let mut directory: AcmeDirectory = value;
            directory.url.span = directory.url.span.take().or(span);
            directories.push(directory);
        }
        Ok(Self(directories))
    }
}

impl Forms for AcmeDirectory {
    const EXPECTED: &'static str =
        "a URL or a table such as { url = \"https://acme.example.net/directory\" }";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self::at(text.to_owned()))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        // The derived implementation, not the trait's.
        Self::deserialize(MapAccessDeserializer::new(map))
    }
}

impl Forms for StickyTable {
    const EXPECTED: &'static str =
        "the name of a cookie or a table such as { cookie = \"upstream\" }";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self::named(text.to_owned()))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        // The derived implementation, not the trait's.
        Self::deserialize(MapAccessDeserializer::new(map))
    }
}

impl Forms for Retry {
    const EXPECTED: &'static str = "false or a table such as { attempts = 2 }";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(if value { Self::Table(RetryTable::default()) } else { Self::Off })
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        RetryTable::deserialize(MapAccessDeserializer::new(map)).map(Self::Table)
    }
}

impl Forms for AccessLogForm {
    const EXPECTED: &'static str = "a path, `off` or a table";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self::to(text))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        AccessLogTable::deserialize(MapAccessDeserializer::new(map)).map(Self)
    }
}

impl Forms for RouteLogValue {
    const EXPECTED: &'static str = "true, false, a path or a table";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self::Switch(value))
    }

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(match text {
            "off" => Self::Switch(false),
            path => Self::Own(AccessLogTable::to(path)),
        })
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        AccessLogTable::deserialize(MapAccessDeserializer::new(map)).map(Self::Own)
    }
}

impl Forms for Statuses {
    const EXPECTED: &'static str = "a status, a class such as `5xx`, or a list";

    fn from_number<E: Error>(value: i64) -> Result<Self, E> {
        Ok(Self(vec![Spanned::detached(value.to_string())]))
    }

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self(vec![Spanned::detached(text.to_owned())]))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = list.next_element::<Spanned<Self>>()? {
            let place = entry.span;
            let own = entry.value.0.into_iter();
            all.extend(own.map(|status| Spanned { value: status.value, span: place.clone() }));
        }
        Ok(Self(all))
    }
}

impl Forms for Hsts {
    const EXPECTED: &'static str = "a time such as \"365d\" or a table";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        let age = DurationValue::deserialize(serde::de::value::StrDeserializer::new(text))?;
        Ok(Self(HstsTable { age, subdomains: false, preload: false }))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        HstsTable::deserialize(MapAccessDeserializer::new(map)).map(Self)
    }
}

impl Forms for RedirectHttps {
    const EXPECTED: &'static str = "true, false or a port";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self(value.then_some(443)))
    }

    fn from_number<E: Error>(value: i64) -> Result<Self, E> {
        match u16::try_from(value) {
            Ok(port) if port > 0 => Ok(Self(Some(port))),
            _ => Err(E::invalid_value(serde::de::Unexpected::Signed(value), &Self::EXPECTED)),
        }
    }
}

impl Forms for Auth {
    const EXPECTED: &'static str = "false or a table such as { basic = \"users\" }";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        match value {
            false => Ok(Self::Off),
            true => Err(E::invalid_value(serde::de::Unexpected::Bool(true), &Self::EXPECTED)),
        }
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let table = AuthTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Self::Table(Box::new(table)))
    }
}

impl Forms for Cors {
    const EXPECTED: &'static str =
        "true, false or a table such as { origins = [\"https://app.example.com\"] }";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self::Switch(value))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let table = CorsTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Self::Table(Box::new(table)))
    }
}

impl Forms for RouteCache {
    const EXPECTED: &'static str = "true, false or a table";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self::Switch(value))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        RouteCacheTable::deserialize(MapAccessDeserializer::new(map)).map(Self::Table)
    }
}

impl Forms for RouteDictionary {
    const EXPECTED: &'static str = "true, false or a table such as { match = \"/blog/*\" }";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self::Switch(value))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        RouteDictionaryTable::deserialize(MapAccessDeserializer::new(map)).map(Self::Table)
    }
}

impl Forms for RouteDav {
    const EXPECTED: &'static str = "true, false or a table such as { methods = [\"PUT\"] }";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self::Switch(value))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        DavTable::deserialize(MapAccessDeserializer::new(map)).map(Self::Table)
    }
}

impl Forms for RouteSsi {
    const EXPECTED: &'static str = "true, false or a table such as { types = [\"text/html\"] }";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self::Switch(value))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        SsiTable::deserialize(MapAccessDeserializer::new(map)).map(Self::Table)
    }
}

impl Forms for Substitutions {
    const EXPECTED: &'static str = "a table such as { \"old\" = \"new\" }, or a list of tables such as { from = \"old\", to = \"new\" }";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        match value {
            false => Ok(Self(Vec::new())),
            true => Err(E::invalid_value(serde::de::Unexpected::Bool(true), &Self::EXPECTED)),
        }
    }

    fn from_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut texts = Vec::new();
        while let Some((from, to)) = map.next_entry::<Spanned<String>, Spanned<String>>()? {
            texts.push(SubstituteTable { from, to, once: false, types: None });
        }
        Ok(Self(texts))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        Ok(Self(texts))
    }
}

impl Forms for SetField {
    const EXPECTED: &'static str =
        "a text or a table such as { value = \"no-store\", status = [404] }";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self { value: text.to_owned(), status: None, absent: false })
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        // The derived implementation, not the trait's.
        Self::deserialize(MapAccessDeserializer::new(map))
    }
}

impl Forms for ErrorPageTable {
    const EXPECTED: &'static str =
        "a path or a table such as { to = \"/fallback{path}\", status = \"page\" }";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self { to: Spanned::detached(text.to_owned()), status: None })
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        // The derived implementation, not the trait's.
        Self::deserialize(MapAccessDeserializer::new(map))
    }
}

impl Forms for PageStatus {
    const EXPECTED: &'static str = "a status such as 200, or \"page\"";

    fn from_number<E: Error>(value: i64) -> Result<Self, E> {
        match u16::try_from(value) {
            Ok(status) if (200..600).contains(&status) => Ok(Self::Code(status)),
            _ => Err(E::invalid_value(serde::de::Unexpected::Signed(value), &Self::EXPECTED)),
        }
    }

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        match text {
            "page" => Ok(Self::OfPage),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &Self::EXPECTED)),
        }
    }
}

impl Forms for StatusRange {
    const EXPECTED: &'static str = "a status such as 404, or a class such as \"4xx\"";

    fn from_number<E: Error>(value: i64) -> Result<Self, E> {
        match u16::try_from(value) {
            Ok(status) if (200..600).contains(&status) => Ok(Self { first: status, last: status }),
            _ => Err(E::invalid_value(serde::de::Unexpected::Signed(value), &Self::EXPECTED)),
        }
    }

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        let class = text.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok());
        match class.filter(|class| (2..6).contains(class)) {
            Some(class) => Ok(Self { first: class * 100, last: class * 100 + 99 }),
            None => Err(E::invalid_value(serde::de::Unexpected::Str(text), &Self::EXPECTED)),
        }
    }
}

impl Forms for RouteStatus {
    const EXPECTED: &'static str =
        "true, false or a table such as { fleet = \"_http._tcp.web.example.com\" }";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self::Switch(value))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        RouteStatusTable::deserialize(MapAccessDeserializer::new(map)).map(Self::Table)
    }
}

impl Forms for RecordRules {
    const EXPECTED: &'static str = "`variable`, `vfc` or a table";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        let format = RecordFormatName::deserialize(serde::de::value::StrDeserializer::new(text))?;
        Ok(Self(RecordsTable { format, control: None, write: None }))
    }

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        RecordsTable::deserialize(MapAccessDeserializer::new(map)).map(Self)
    }
}

impl Forms for RateLimits {
    const EXPECTED: &'static str = "a table such as { requests = \"10/s\" }, or a list of such";

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        RateLimitTable::deserialize(MapAccessDeserializer::new(map)).map(|limit| Self(vec![limit]))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut limits = Vec::new();
        while let Some(limit) = list.next_element()? {
            limits.push(limit);
        }
        Ok(Self(limits))
    }
}

impl Forms for Codings {
    const EXPECTED: &'static str = "true, false or a list such as [\"zstd\", \"br\", \"gzip\"]";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self(if value {
            vec![ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip]
        } else {
            vec![]
        }))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut codings = Vec::new();
        while let Some(name) = list.next_element::<CodingName>()? {
            codings.push(name.into());
        }
        Ok(Self(codings))
    }
}

impl Forms for OneOrMany<String> {
    const EXPECTED: &'static str = "a text or a list of texts";

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        Ok(Self(vec![Spanned::detached(text.to_owned())]))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Self(values))
    }
}

impl Forms for ValueTest {
    const EXPECTED: &'static str = "true, false, a text or a list of texts";

    fn from_bool<E: Error>(value: bool) -> Result<Self, E> {
        Ok(Self::Present(value))
    }

    fn from_str<E: Error>(text: &str) -> Result<Self, E> {
        OneOrMany::from_str(text).map(|OneOrMany(texts)| Self::OneOf(texts))
    }

    fn from_seq<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        OneOrMany::from_seq(list).map(|OneOrMany(texts)| Self::OneOf(texts))
    }
}
