//! Test vectors: RFC 7515 appendix A, RFC 8037 appendix A.

use std::time::Duration;

use dunlin_config::KeySource;

use super::*;

const CLAIMS: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
/// Before the tokens of the RFC expire.
const THEN: u64 = 1_300_819_379;

const SYMMETRIC: &str = r#"{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}"#;
const RSA: &str = r#"{"kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB"}"#;
const P256: &str = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
const P521: &str = r#"{"kty":"EC","crv":"P-521","x":"AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk","y":"ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2"}"#;
const ED25519: &str =
    r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;

fn token(header: &str, payload: &str, signature: &str) -> String {
    format!("{header}.{payload}.{signature}")
}

fn hs256() -> String {
    token(
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9",
        CLAIMS,
        "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    )
}

fn rs256() -> String {
    token(
        "eyJhbGciOiJSUzI1NiJ9",
        CLAIMS,
        "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
    )
}

fn es256() -> String {
    token(
        "eyJhbGciOiJFUzI1NiJ9",
        CLAIMS,
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    )
}

fn rules(algorithms: &[JwtAlgorithm]) -> JwtRules {
    JwtRules {
        keys: KeySource::File("keys".into()),
        issuers: Vec::new(),
        audiences: Vec::new(),
        algorithms: algorithms.to_vec(),
        leeway: Duration::ZERO,
        required: vec!["exp".into()],
        cookie: None,
        query: None,
        claims: Vec::new(),
        challenge: "Bearer".into(),
    }
}

fn keys(text: &str) -> KeySet {
    KeySet::of_file(text.as_bytes()).unwrap()
}

#[test]
fn tokens_of_rfc_7515_are_accepted() {
    for (token, key, algorithm) in [
        (hs256(), SYMMETRIC, JwtAlgorithm::HS256),
        (rs256(), RSA, JwtAlgorithm::RS256),
        (es256(), P256, JwtAlgorithm::ES256),
    ] {
        let claims = verify(token.as_bytes(), &rules(&[algorithm]), &keys(key), THEN).unwrap();
        assert_eq!(claims.field("iss"), Ok(Some("joe".into())));
        assert_eq!(claims.field("http://example.com/is_root"), Ok(Some("true".into())));
        assert_eq!(claims.subject(), Ok(None));
        // Each changed character invalidates it.
        for at in (0..token.len()).step_by(7) {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(verify(&changed, &rules(&[algorithm]), &keys(key), THEN).is_err(), "{at}");
        }
        let late = verify(token.as_bytes(), &rules(&[algorithm]), &keys(key), THEN + 1);
        assert_eq!(late.err(), Some(TokenError::Expired));
    }
}

#[test]
fn signatures_of_other_payloads_are_right() {
    for (token, key, algorithm) in [
        (
            "eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA.AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCAPZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn",
            P521,
            JwtAlgorithm::ES512,
        ),
        (
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
            ED25519,
            JwtAlgorithm::EdDSA,
        ),
    ] {
        // The signature is verified before the payload is read, which is no JSON.
        let read = |token: &str| verify(token.as_bytes(), &rules(&[algorithm]), &keys(key), THEN);
        assert_eq!(read(token).err(), Some(TokenError::Malformed));
        assert_eq!(
            read(&token.replacen(".R", ".S", 1).replacen(".UG", ".UH", 1)).err(),
            Some(TokenError::Signature)
        );
    }
}

#[test]
fn no_algorithm_is_confused_with_another() {
    let all = [
        JwtAlgorithm::RS256,
        JwtAlgorithm::RS384,
        JwtAlgorithm::PS256,
        JwtAlgorithm::ES256,
        JwtAlgorithm::ES512,
        JwtAlgorithm::EdDSA,
        JwtAlgorithm::HS256,
    ];
    // RFC 7515 A.5, and the same with a signature.
    for unsigned in
        [format!("eyJhbGciOiJub25lIn0.{CLAIMS}."), format!("eyJhbGciOiJub25lIn0.{CLAIMS}.AA")]
    {
        let read = verify(unsigned.as_bytes(), &rules(&all), &keys(RSA), THEN);
        assert_eq!(read.err(), Some(TokenError::Algorithm));
    }
    // A token for a symmetric key, where the key is public: with its text, or its modulus.
    for secret in [
        RSA.as_bytes().to_vec(),
        decode(b"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPd").unwrap(),
    ] {
        let message = format!("eyJhbGciOiJIUzI1NiJ9.{CLAIMS}");
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &secret);
        let signature = aws_lc_rs::hmac::sign(&key, message.as_bytes());
        let signature =
            base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, signature);
        let forged = format!("{message}.{signature}");
        let read = verify(forged.as_bytes(), &rules(&all), &keys(RSA), THEN);
        assert_eq!(read.err(), Some(TokenError::Signature));
    }
    for (token, own) in [(hs256(), SYMMETRIC), (rs256(), RSA), (es256(), P256)] {
        for other in [SYMMETRIC, RSA, P256, P521, ED25519].into_iter().filter(|key| *key != own) {
            let read = verify(token.as_bytes(), &rules(&all), &keys(other), THEN);
            assert_eq!(read.err(), Some(TokenError::Signature), "{other}");
        }
    }
    let read = verify(rs256().as_bytes(), &rules(&[JwtAlgorithm::RS384]), &keys(RSA), THEN);
    assert_eq!(read.err(), Some(TokenError::Algorithm));
    let of_other_use = RSA.replace("\"RSA\"", "\"RSA\",\"alg\":\"RS384\"");
    let read = verify(rs256().as_bytes(), &rules(&all), &keys(&of_other_use), THEN);
    assert_eq!(read.err(), Some(TokenError::UnknownKey));
    assert!(KeySet::published(SYMMETRIC.as_bytes()).is_err());
}

/// Returns a token with these claims, signed with the symmetric key.
fn made(header: &str, claims: &str) -> String {
    let encode = |bytes: &[u8]| {
        base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, bytes)
    };
    let secret = decode(
        b"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow",
    )
    .unwrap();
    let message = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &secret);
    let signature = aws_lc_rs::hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", encode(signature.as_ref()))
}

const HEADER: &str = r#"{"alg":"HS256"}"#;

#[test]
fn claims_are_checked() {
    let mut rules = rules(&[JwtAlgorithm::HS256]);
    rules.leeway = Duration::from_secs(10);
    rules.issuers = vec!["a".into(), "b".into()];
    rules.audiences = vec!["us".into()];
    let keys = keys(SYMMETRIC);
    for (claims, expected) in [
        (r#"{"exp":1000,"iss":"b","aud":"us"}"#, None),
        (r#"{"exp":991,"iss":"b","aud":["them","us"],"nbf":1010}"#, None),
        (r#"{"exp":1e3,"iss":"b","aud":"us","nbf":999.5}"#, None),
        (r#"{"exp":990,"iss":"b","aud":"us"}"#, Some(TokenError::Expired)),
        (r#"{"exp":2000,"nbf":1011,"iss":"b","aud":"us"}"#, Some(TokenError::Early)),
        (r#"{"iss":"b","aud":"us"}"#, Some(TokenError::Claim)),
        (r#"{"exp":"1000","iss":"b","aud":"us"}"#, Some(TokenError::Claim)),
        (r#"{"exp":null,"iss":"b","aud":"us"}"#, Some(TokenError::Claim)),
        (r#"{"exp":1000,"iss":"c","aud":"us"}"#, Some(TokenError::Issuer)),
        (r#"{"exp":1000,"iss":["b"],"aud":"us"}"#, Some(TokenError::Issuer)),
        (r#"{"exp":1000,"aud":"us"}"#, Some(TokenError::Issuer)),
        (r#"{"exp":1000,"iss":"b"}"#, Some(TokenError::Audience)),
        (r#"{"exp":1000,"iss":"b","aud":[]}"#, Some(TokenError::Audience)),
        (r#"{"exp":1000,"iss":"b","aud":["usa"]}"#, Some(TokenError::Audience)),
        ("[]", Some(TokenError::Malformed)),
    ] {
        let read = verify(made(HEADER, claims).as_bytes(), &rules, &keys, 1000);
        assert_eq!(read.err(), expected, "{claims}");
    }
    rules.required.clear();
    let read = verify(made(HEADER, r#"{"iss":"b","aud":"us"}"#).as_bytes(), &rules, &keys, 1000);
    assert_eq!(read.err(), None);
}

#[test]
fn claims_become_fields() {
    let claims = r#"{"exp":2000,"sub":"ann","n":7,"list":["a","b"],"realm":{"roles":["x"]},"a.b":"whole","bad":"x\ny",
        "deep":[["a"]],"none":null,"object":{"a":1}}"#;
    let read = verify(
        made(HEADER, claims).as_bytes(),
        &rules(&[JwtAlgorithm::HS256]),
        &keys(SYMMETRIC),
        1000,
    );
    let read = read.unwrap();
    assert_eq!(read.subject(), Ok(Some("ann".into())));
    for (name, expected) in [
        ("n", Ok(Some("7"))),
        ("list", Ok(Some("a,b"))),
        ("realm.roles", Ok(Some("x"))),
        ("a.b", Ok(Some("whole"))),
        ("object", Ok(Some("{\"a\":1}"))),
        ("none", Ok(None)),
        ("other", Ok(None)),
        ("realm.other", Ok(None)),
        ("bad", Err(TokenError::Claim)),
        ("deep", Err(TokenError::Claim)),
    ] {
        assert_eq!(read.field(name), expected.map(|text| text.map(str::to_owned)), "{name}");
    }
}

#[test]
fn malformed_tokens_are_rejected() {
    let rules = rules(&[JwtAlgorithm::HS256]);
    let keys = keys(SYMMETRIC);
    let good = r#"{"exp":2000}"#;
    for token in [
        String::new(),
        ".".into(),
        "..".into(),
        "a.b.c.d.e".into(),
        made("[]", good),
        made(r#"{"alg":"HS256","crit":["x"],"x":1}"#, good),
        made(r#"{"alg":"HS256","kid":7}"#, good),
        format!("{}=", made(HEADER, good)),
        format!("{}.", made(HEADER, good)),
        made(HEADER, good).replace('.', " ."),
    ] {
        let read = verify(token.as_bytes(), &rules, &keys, 1000);
        assert_eq!(read.err(), Some(TokenError::Malformed), "{token}");
    }
}

#[test]
fn keys_are_chosen_by_their_ids() {
    let named = |id: &str| SYMMETRIC.replace("\"oct\"", &format!("\"oct\",\"kid\":\"{id}\""));
    let rules = rules(&[JwtAlgorithm::HS256]);
    let token = made(r#"{"alg":"HS256","kid":"b"}"#, r#"{"exp":2000}"#);
    let of = |text: String| verify(token.as_bytes(), &rules, &keys(&text), 1000).err();
    assert_eq!(of(format!("{{\"keys\":[{},{}]}}", named("a"), named("b"))), None);
    assert_eq!(of(format!("{{\"keys\":[{P256},{}]}}", named("b"))), None);
    assert_eq!(of(named("a")), Some(TokenError::UnknownKey));
    assert_eq!(of(SYMMETRIC.into()), None);
}

#[test]
fn files_that_have_no_keys_are_errors() {
    let error = |text: &str| KeySet::of_file(text.as_bytes()).unwrap_err();
    assert!(error("").contains("neither"));
    assert!(error("{").contains("not JSON, in line 1"));
    assert!(error("{\"keys\":[]}").contains("no key"));
    assert!(error("{\"keys\":7}").contains("not a list"));
    assert!(error(r#"{"kty":"oct","k":"AAAA"}"#).contains("less than 32 bytes"));
    assert!(
        error(r#"{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}"#)
            .contains("length of its curve")
    );
    assert!(error(r#"{"kty":"RSA","e":"AQAB"}"#).contains("lacks `n`"));
    assert!(
        error("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
            .contains("private key")
    );
    assert!(
        error("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n").contains("malformed")
    );
    let many = vec![P256; 65].join(",");
    assert!(error(&format!("{{\"keys\":[{many}]}}")).contains("more than 64"));
    // Other uses and kinds are passed over.
    let other = P256.replace("\"EC\"", "\"EC\",\"use\":\"enc\"");
    let set = keys(&format!("{{\"keys\":[{other},{{\"kty\":\"new\"}},{P256}]}}"));
    assert_eq!(set.keys.len(), 1);
    assert!(!format!("{:?}", keys(SYMMETRIC)).contains("AyM1"));
}

#[test]
fn public_keys_in_pem_form_are_read() {
    const TEXT: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
        -----END PUBLIC KEY-----\n";
    let token = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let read = verify(token.as_bytes(), &rules(&[JwtAlgorithm::EdDSA]), &keys(TEXT), THEN);
    assert_eq!(read.err(), Some(TokenError::Malformed));
}
