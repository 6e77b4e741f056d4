//! Host names with other letters than those of ASCII, as the Domain Name System has them (RFC 3492, RFC 5891).

/// Returns the name by which the Domain Name System has `host`; `None` if a label has too many letters.
pub(super) fn ascii_name(host: &str) -> Option<String> {
    let labels = host.to_lowercase();
    let labels = labels.split('.').map(|label| match label.is_ascii() {
        true => Some(label.to_owned()),
        false => Some(format!("xn--{}", encode(label)?)),
    });
    Some(labels.collect::<Option<Vec<_>>>()?.join("."))
}

const BASE: u32 = 36;
const FIRST_BIAS: u32 = 72;
const FIRST_LETTER: u32 = 128;

/// Encodes a label (RFC 3492 §6.3).
fn encode(label: &str) -> Option<String> {
    let letters: Vec<u32> = label.chars().map(u32::from).collect();
    let mut text: String = label.chars().filter(char::is_ascii).collect();
    let basic = u32::try_from(text.len()).ok()?;
    let mut done = basic;
    if basic > 0 {
        text.push('-');
    }
    let (mut next, mut delta, mut bias) = (FIRST_LETTER, 0_u32, FIRST_BIAS);
    while (done as usize) < letters.len() {
        let least = letters.iter().copied().filter(|&letter| letter >= next).min()?;
        delta = delta.checked_add((least - next).checked_mul(done + 1)?)?;
        next = least;
        for &letter in &letters {
            if letter < next {
                delta = delta.checked_add(1)?;
            }
            if letter == next {
                push_number(&mut text, delta, bias);
                bias = adapt(delta, done + 1, done == basic);
                delta = 0;
                done += 1;
            }
        }
        delta = delta.checked_add(1)?;
        next += 1;
    }
    Some(text)
}

/// Appends a number of variable length.
fn push_number(text: &mut String, mut number: u32, bias: u32) {
    for at in 1.. {
        let threshold = (BASE * at).saturating_sub(bias).clamp(1, 26);
        if number < threshold {
            break;
        }
        let rest = number - threshold;
        text.push(digit(threshold + rest % (BASE - threshold)));
        number = rest / (BASE - threshold);
    }
    text.push(digit(number));
}

fn digit(value: u32) -> char {
    char::from_digit((value + 10) % BASE, BASE).unwrap_or_default()
}

fn adapt(delta: u32, letters: u32, is_first: bool) -> u32 {
    let mut delta = if is_first { delta / 700 } else { delta / 2 };
    delta += delta / letters;
    let mut bias = 0;
    while delta > 455 {
        delta /= BASE - 1;
        bias += BASE;
    }
    bias + BASE * delta / (delta + 38)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_by_rfc_3492() {
        for (host, name) in [
            ("m\u{fc}nchen.test", "xn--mnchen-3ya.test"),
            ("M\u{dc}NCHEN.test", "xn--mnchen-3ya.test"),
            ("a.example", "a.example"),
            ("stra\u{df}e.de", "xn--strae-oqa.de"),
            ("\u{4f8b}\u{3048}.\u{30c6}\u{30b9}\u{30c8}", "xn--r8jz45g.xn--zckzah"),
            ("\u{43f}\u{440}\u{438}\u{43c}\u{435}\u{440}", "xn--e1afmkfd"),
        ] {
            assert_eq!(ascii_name(host).as_deref(), Some(name));
        }
    }
}
