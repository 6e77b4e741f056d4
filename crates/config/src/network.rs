//! IP networks in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A network in CIDR notation, such as `192.0.2.0/24` or `2001:db8::/32`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    bits: u128,
    /// Prefix length of 128 bits: IPv4 is stored as IPv4-mapped IPv6.
    prefix: u8,
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn mask(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = || {
            if text.eq_ignore_ascii_case("all") {
                return "\"all\" is not a network; write \"0.0.0.0/0\" and \"::/0\" for all addresses"
                    .into();
            }
            format!(
                "{text:?} is not a network such as \"192.0.2.0/24\", \"2001:db8::/32\" or \"::1\""
            )
        };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| hint())?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let length: u8 = match length {
            Some(length) => length.parse().ok().filter(|length| *length <= max).ok_or_else(hint)?,
            None => max,
        };
        let prefix = length + (128 - max);
        Ok(Self { bits: bits(address) & mask(prefix), prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.bits);
        match address.to_ipv4_mapped() {
            Some(address) if self.prefix >= 96 => write!(f, "{address}/{}", self.prefix - 96),
            _ => write!(f, "{address}/{}", self.prefix),
        }
    }
}

impl Network {
    /// Returns the prefix length of 128 bits.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Returns `true` if the network contains the address.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        bits(address) & mask(self.prefix) == self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn contains_its_addresses_and_no_others() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.77/24", "192.0.2.1", "191.0.2.1"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("2001:db8::/32", "2001:db8:ffff::", "2001:db9::"),
            ("::1", "::1", "::2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
        ] {
            assert_eq!(network(&network(text).to_string()), network(text));
            assert!(network(text).contains(inside.parse().unwrap()), "{text} {inside}");
            assert!(!network(text).contains(outside.parse().unwrap()), "{text} {outside}");
        }
        assert!(network("::/0").contains("192.0.2.1".parse().unwrap()));
        for text in ["", "x", "1.2.3.4/33", "::/129", "1.2.3/8", "1.2.3.4/", "/8"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
