//! Lists in field values (RFC 9110 §5.6.1) and their weights (§12.4.2).

/// Returns the members of a comma-separated list over all lines of a field, without empty ones. Commas in quoted strings do
/// not separate members.
pub fn members<'a>(values: &'a [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> {
    values.iter().flat_map(|value| split(value, b',')).filter(|member| !member.is_empty())
}

/// Returns the trimmed parts of `text` between separators outside quoted strings.
pub fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut quoted, mut escaped) = (false, false);
        let end = text.iter().position(|&b| {
            match b {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b if b == separator && !quoted => return true,
                _ => {}
            }
            false
        });
        rest = end.map(|end| &text[end + 1..]);
        Some(text[..end.unwrap_or(text.len())].trim_ascii())
    })
}

/// Returns a member's weight in thousandths: 1000 by default, `None` if malformed.
pub fn weight<'a>(parameters: impl Iterator<Item = &'a [u8]>) -> Option<u16> {
    for parameter in parameters {
        if let [b'q' | b'Q', b'=', value @ ..] = parameter {
            return thousandths(value);
        }
    }
    Some(1000)
}

/// `0`, `0.` and up to three digits, or `1`, `1.` and up to three zeros.
fn thousandths(text: &[u8]) -> Option<u16> {
    let (whole, digits) = match text {
        [whole] => (whole, &[][..]),
        [whole, b'.', digits @ ..] if digits.len() <= 3 => (whole, digits),
        _ => return None,
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let fraction = (0..3)
        .fold(0, |sum, at| sum * 10 + digits.get(at).map_or(0, |digit| u16::from(digit - b'0')));
    match (whole, fraction) {
        (b'0', fraction) => Some(fraction),
        (b'1', 0) => Some(1000),
        _ => None,
    }
}
