//! Addresses as text, as fields and logs have them.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};

/// Writes an IP address. An IPv4-mapped IPv6 address is written as IPv4.
pub fn push(address: IpAddr, out: &mut Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(address) => address_v4(address, out),
        // Writes to a `Vec` do not fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

fn address_v4(address: Ipv4Addr, out: &mut Vec<u8>) {
    let mut text = [0; 16];
    let mut end = 0;
    for octet in address.octets() {
        if octet >= 100 {
            text[end] = b'0' + octet / 100;
            end += 1;
        }
        if octet >= 10 {
            text[end] = b'0' + octet / 10 % 10;
            end += 1;
        }
        text[end] = b'0' + octet % 10;
        text[end + 1] = b'.';
        end += 2;
    }
    out.extend_from_slice(&text[..end - 1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_displayed() {
        for text in ["0.0.0.0", "127.0.0.1", "9.10.99.100", "255.255.255.255", "::1", "2001:db8::a"]
        {
            let mut out = b"for=".to_vec();
            push(text.parse().unwrap(), &mut out);
            assert_eq!(out, format!("for={text}").into_bytes());
        }
        let mut out = Vec::new();
        push("::ffff:192.0.2.1".parse().unwrap(), &mut out);
        assert_eq!(out, b"192.0.2.1");
    }
}
