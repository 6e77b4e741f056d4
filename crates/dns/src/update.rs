//! TXT records that are added to and removed from a zone by dynamic updates (RFC 2136), signed by TSIG (RFC 8945).

use std::fmt;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::tsig::{TsigAlgorithm, TsigError};
use hickory_proto::rr::rdata::{TSIG, TXT};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType, TSigner};

use crate::message::{Response, exchange};
use crate::resolve::domain;

/// A TXT record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRecord {
    /// Its name, without a dot at the end.
    pub name: String,
    /// Its text.
    pub value: String,
}

/// What an update does with a record. Other records of the name stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is added.
    Add,
    /// It is removed.
    Remove,
}

/// A key that signs updates.
#[derive(Clone)]
pub struct UpdateKey(TSigner);

/// The hash functions of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of RFC 8945, section 6")]
pub enum KeyAlgorithm {
    HmacSha256,
    HmacSha384,
    HmacSha512,
}

/// The time to live of a record, in seconds.
const TTL: u32 = 60;
/// How much the clocks of this machine and of the server may differ, in seconds (RFC 8945, section 10).
const FUDGE: u16 = 300;

impl UpdateKey {
    /// Returns the key of this name.
    ///
    /// # Errors
    /// The name is not a domain name.
    pub fn new(name: &str, algorithm: KeyAlgorithm, secret: Vec<u8>) -> Result<Self, String> {
        let algorithm = match algorithm {
            KeyAlgorithm::HmacSha256 => TsigAlgorithm::HmacSha256,
            KeyAlgorithm::HmacSha384 => TsigAlgorithm::HmacSha384,
            KeyAlgorithm::HmacSha512 => TsigAlgorithm::HmacSha512,
        };
        let signer = TSigner::new(secret, algorithm, domain(name)?.to_lowercase(), FUDGE);
        Ok(Self(signer.map_err(|error| error.to_string())?))
    }
}

impl fmt::Debug for UpdateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpdateKey({})", self.0.signer_name())
    }
}

/// Adds a record to a zone, or removes it. A change that is made already is no error.
///
/// # Errors
/// The change was not made: a sentence that names the server and the zone.
pub async fn update(
    server: SocketAddr,
    zone: &str,
    (change, record): (Change, &TextRecord),
    key: Option<&UpdateKey>,
) -> Result<(), String> {
    let failed = |what: String| format!("name server {server}, zone {zone}: {what}");
    let mut message = message(zone, change, record).map_err(failed)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if let Some(key) = key {
        message.finalize(&key.0, now).map_err(|error| failed(error.to_string()))?;
    }
    let response = exchange(server, &message).await?;
    match (key, response.message.response_code) {
        (Some(key), ResponseCode::NoError) => verify(key, &message, &response, now).map_err(failed),
        (None, ResponseCode::NoError) => Ok(()),
        (key, code) => Err(failed(rejection(code, response.message.signature(), key))),
    }
}

/// Returns the message of an update (RFC 2136, section 2.5).
fn message(zone: &str, change: Change, record: &TextRecord) -> Result<Message, String> {
    let (zone, name) = (domain(zone)?, domain(&record.name)?);
    if !zone.zone_of(&name) {
        return Err(format!("{} is not in it", record.name));
    }
    let data = RData::TXT(TXT::new(vec![record.value.clone()]));
    let mut record = Record::from_rdata(name, TTL, data);
    if change == Change::Remove {
        (record.dns_class, record.ttl) = (DNSClass::NONE, 0);
    }
    let mut message = Message::new(Message::query().id, MessageType::Query, OpCode::Update);
    message.add_query(Query::query(zone, RecordType::SOA));
    message.add_authority(record);
    Ok(message)
}

/// Verifies the signature of a response. It was parsed before, so that the counts in its header are right.
fn verify(key: &UpdateKey, sent: &Message, response: &Response, now: u64) -> Result<(), String> {
    let Some(signature) = response.message.signature() else {
        return Err("the response is not signed".to_owned());
    };
    let TSIG { time, fudge, .. } = &signature.data;
    // The crate computes the bounds of the time without a check.
    if time.abs_diff(now) > u64::from(*fudge) || *time < u64::from(*fudge) {
        return Err("the clocks of this machine and of the server differ".to_owned());
    }
    let previous = sent.signature().map(|signature| &signature.data.mac[..]);
    let verified = key.0.verify_message_byte(&response.bytes, previous, true);
    verified.map(drop).map_err(|_| "the signature of the response is wrong".to_owned())
}

/// Describes why a server has rejected an update.
fn rejection(
    code: ResponseCode,
    signature: Option<&Record<TSIG>>,
    key: Option<&UpdateKey>,
) -> String {
    let name = key.map(|key| key.0.signer_name().to_ascii()).unwrap_or_default();
    let name = name.trim_end_matches('.');
    let algorithm = key.map(|key| key.0.algorithm().to_string()).unwrap_or_default();
    let algorithm = algorithm.trim_end_matches('.');
    match (signature.and_then(|signature| signature.data.error), code) {
        (Some(TsigError::BadKey), _) => {
            format!(
                "it has no key {name} for {algorithm}, or the key may not change the record (BADKEY)"
            )
        }
        (Some(TsigError::BadSig), _) => {
            format!("its key {name} for {algorithm} has another secret (BADSIG)")
        }
        (Some(TsigError::BadTime), _) => {
            "the clocks of this machine and of the server differ (BADTIME)".to_owned()
        }
        (_, ResponseCode::NotAuth) => "it has no such zone, or no such key (NOTAUTH)".to_owned(),
        (_, ResponseCode::NotZone) => "the record is not in the zone (NOTZONE)".to_owned(),
        (_, ResponseCode::Refused) if key.is_none() => {
            "it does not allow the update (RCODE 5); write the `key` that may change the zone"
                .to_owned()
        }
        (_, ResponseCode::Refused) => {
            format!("it does not allow the update by the key {name} (RCODE 5)")
        }
        (_, ResponseCode::NotImp) => "it has no dynamic updates (NOTIMP)".to_owned(),
        (_, code) => format!("the update has failed: {code}"),
    }
}

/// Returns the name of the zone of a name, by the SOA record that its server has in the response.
///
/// # Errors
/// The server has not responded, or has no zone of the name.
pub async fn zone_of(server: SocketAddr, name: &str) -> Result<String, String> {
    let name = domain(name)?;
    let mut message = Message::query();
    message.metadata.recursion_desired = false;
    message.add_query(Query::query(name.clone(), RecordType::SOA));
    let Response { message, .. } = exchange(server, &message).await?;
    let found = message
        .answers
        .iter()
        .chain(&message.authorities)
        .find(|record| record.record_type() == RecordType::SOA && record.name.zone_of(&name));
    match found {
        Some(record) => Ok(text(&record.name)),
        None => Err(format!(
            "name server {server}: it has no zone of {}; write the `zone`",
            text(&name)
        )),
    }
}

/// Returns `true` if the server has the record.
///
/// # Errors
/// The server has not responded.
pub async fn has_text(server: SocketAddr, record: &TextRecord) -> Result<bool, String> {
    let name = domain(&record.name)?;
    let mut message = Message::query();
    message.metadata.recursion_desired = false;
    message.add_query(Query::query(name.clone(), RecordType::TXT));
    let Response { message, .. } = exchange(server, &message).await?;
    let is_it = |data: &RData| match data {
        RData::TXT(texts) => texts.txt_data.concat() == record.value.as_bytes(),
        _ => false,
    };
    Ok(message.answers.iter().any(|found| found.name == name && is_it(&found.data)))
}

/// Returns the text of a name, without a dot at the end.
pub(crate) fn text(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::rdata::tsig::make_tsig_record;

    use super::*;

    fn record() -> TextRecord {
        TextRecord { name: "_acme-challenge.www.example.com".into(), value: "value".into() }
    }

    #[test]
    fn an_update_has_the_bytes_of_rfc_2136() {
        let added = message("example.com", Change::Add, &record()).unwrap().to_vec().unwrap();
        let mut expected = Vec::new();
        // The opcode is 5; there is one zone and one update (section 2.2).
        expected.extend([0x28, 0, 0, 1, 0, 0, 0, 1, 0, 0]);
        // The zone, of type SOA and class IN.
        expected.extend(*b"\x07example\x03com\x00\x00\x06\x00\x01");
        // The record, whose name ends as that of the zone at byte 12: TXT, IN, 60 seconds, 6 bytes.
        expected.extend(*b"\x0f_acme-challenge\x03www\xc0\x0c");
        expected.extend(*b"\x00\x10\x00\x01\x00\x00\x00\x3c\x00\x06\x05value");
        assert_eq!(added[2..], expected);
        // Section 2.5.4: the class is NONE, and the time to live 0.
        let removed = message("example.com", Change::Remove, &record()).unwrap().to_vec().unwrap();
        let end = removed.len();
        assert_eq!(removed[end - 16..], *b"\x00\x10\x00\xfe\x00\x00\x00\x00\x00\x06\x05value");
    }

    #[test]
    fn a_record_outside_of_the_zone_is_an_error() {
        let error = message("example.net", Change::Add, &record()).unwrap_err();
        assert_eq!(error, "_acme-challenge.www.example.com is not in it");
    }

    /// Returns the response of a server with the key, to a message that was sent at `now`.
    fn signed(key: &UpdateKey, sent: &Message, now: u64) -> Response {
        let mut message = Message::response(sent.id, OpCode::Update);
        let mut stub =
            TSIG::new(key.0.algorithm().clone(), now, FUDGE, Vec::new(), sent.id, None, Vec::new());
        let previous = &sent.signature().unwrap().data.mac;
        let bytes = message.to_vec().unwrap();
        let bytes = key.0.encode_response_tbs(previous, &bytes, &stub).unwrap();
        stub = stub.set_mac(key.0.sign(&bytes).unwrap());
        let record = make_tsig_record(key.0.signer_name().clone(), stub);
        message.set_signature(Box::new(record));
        let bytes = message.to_vec().unwrap();
        Response { message: Message::from_vec(&bytes).unwrap(), bytes }
    }

    #[test]
    fn only_a_response_with_the_same_key_and_time_is_accepted() {
        let key = |secret: &[u8]| {
            UpdateKey::new("acme", KeyAlgorithm::HmacSha256, secret.to_vec()).unwrap()
        };
        let (own, other) = (key(b"one"), key(b"other"));
        let now = 1_700_000_000;
        let mut sent = message("example.com", Change::Add, &record()).unwrap();
        sent.finalize(&own.0, now).unwrap();
        assert_eq!(verify(&own, &sent, &signed(&own, &sent, now), now), Ok(()));
        let wrong = verify(&own, &sent, &signed(&other, &sent, now), now).unwrap_err();
        assert!(wrong.contains("signature of the response is wrong"), "{wrong}");
        for time in [0, now - 301, now + 301] {
            let late = verify(&own, &sent, &signed(&own, &sent, time), now).unwrap_err();
            assert!(late.contains("clocks"), "{late}");
        }
        let mut unsigned = signed(&own, &sent, now);
        unsigned.message = Message::response(sent.id, OpCode::Update);
        assert_eq!(verify(&own, &sent, &unsigned, now).unwrap_err(), "the response is not signed");
        // The secret is not shown.
        assert_eq!(format!("{own:?}"), "UpdateKey(acme.)");
    }

    #[test]
    fn a_key_has_the_macs_of_its_algorithm() {
        // RFC 4231, section 4.3: the second test case.
        let (secret, data) = (b"Jefe".to_vec(), b"what do ya want for nothing?");
        for (algorithm, length, first) in [
            (KeyAlgorithm::HmacSha256, 32, [0x5b, 0xdc, 0xc1, 0x46]),
            (KeyAlgorithm::HmacSha384, 48, [0xaf, 0x45, 0xd2, 0xe3]),
            (KeyAlgorithm::HmacSha512, 64, [0x16, 0x4b, 0x7a, 0x7b]),
        ] {
            let key = UpdateKey::new("acme", algorithm, secret.clone()).unwrap();
            let mac = key.0.sign(data).unwrap();
            assert_eq!((mac.len(), &mac[..4]), (length, &first[..]));
        }
    }

    #[test]
    fn a_rejection_names_its_cause() {
        let key = UpdateKey::new("Acme.", KeyAlgorithm::HmacSha512, vec![1]).unwrap();
        let of = |error| {
            let data = TSIG::new(TsigAlgorithm::HmacSha512, 0, 0, vec![], 0, error, vec![]);
            let record = Record::from_rdata(Name::root(), 0, data);
            rejection(ResponseCode::NotAuth, Some(&record), Some(&key))
        };
        let bad_key = of(Some(TsigError::BadKey));
        assert!(bad_key.starts_with("it has no key acme for hmac-sha512, or "), "{bad_key}");
        assert!(of(Some(TsigError::BadSig)).contains("another secret"));
        assert!(of(Some(TsigError::BadTime)).contains("clocks"));
        assert!(of(None).contains("no such zone"));
        assert!(rejection(ResponseCode::Refused, None, None).contains("write the `key`"));
    }
}
