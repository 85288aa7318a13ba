//! Permitted client addresses: `--allow`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Address, or all addresses with the same first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    address: IpAddr,
    bits: u8,
}

/// Addresses of some ranges, or all addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdmittedAddresses(Vec<AddressRange>);

impl AddressRange {
    /// Return whether an address is in the range. IPv4 addresses within IPv6 are IPv4 addresses.
    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.bits);
                shift == 32 || (own.to_bits() ^ other.to_bits()) >> shift == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.bits);
                shift == 128 || (own.to_bits() ^ other.to_bits()) >> shift == 0
            }
            _ => false,
        }
    }
}

impl FromStr for AddressRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected a numeric address, or one with a number of bits, such as 192.0.2.7 or 192.0.2.0/24";
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| EXPECTED)?;
        let (address, all) = match (address.to_canonical(), bits) {
            // The number of bits refers to the written form.
            (_, Some(_)) | (IpAddr::V6(_), None) => {
                (address, if address.is_ipv4() { 32 } else { 128 })
            }
            (canonical @ IpAddr::V4(_), None) => (canonical, 32),
        };
        let bits = bits.map_or(Ok(all), str::parse).map_err(|_| EXPECTED)?;
        if bits > all {
            return Err(EXPECTED);
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl AdmittedAddresses {
    /// Return the addresses of these ranges; without ranges, all addresses.
    pub(crate) fn new(ranges: &[AddressRange]) -> Self {
        Self(ranges.to_vec())
    }

    /// Return whether clients with this address can connect.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.is_empty() || self.0.iter().any(|range| range.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(ranges: &[&str], address: &str) -> bool {
        let ranges: Vec<_> = ranges
            .iter()
            .map(|range| range.parse().expect("a range"))
            .collect();
        AdmittedAddresses::new(&ranges).contains(address.parse().expect("an address"))
    }

    #[test]
    fn without_ranges_all_addresses_are_admitted() {
        assert!(admits(&[], "192.0.2.1"));
        assert!(admits(&[], "2001:db8::1"));
    }

    #[test]
    fn only_addresses_of_a_range_are_admitted() {
        for (range, inside, outside) in [
            ("10.0.0.2", "10.0.0.2", "10.0.0.20"),
            ("10.0.0.2/32", "10.0.0.2", "10.0.0.3"),
            ("10.0.0.77/24", "10.0.0.1", "10.0.1.1"),
            ("10.0.0.0/31", "10.0.0.1", "10.0.0.2"),
            ("2001:db8::/32", "2001:db8:1::9", "2001:db9::"),
            ("2001:db8::7", "2001:db8::7", "2001:db8::8"),
            ("10.0.0.2", "::ffff:10.0.0.2", "::ffff:10.0.0.3"),
            ("::ffff:10.0.0.2", "10.0.0.2", "10.0.0.3"),
            ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("::/0", "2001:db8::1", "203.0.113.9"),
        ] {
            assert!(admits(&[range], inside), "{range} {inside}");
            assert!(!admits(&[range], outside), "{range} {outside}");
        }
        assert!(admits(&["10.0.0.1", "10.0.0.2"], "10.0.0.2"));
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        for text in [
            "",
            "/",
            "10.0.0.2/",
            "10.0.0.2/33",
            "10.0.0/8",
            "a.example.org",
            "::1/129",
            "10.0.0.2/-1",
            "10.0.0.2/+8x",
        ] {
            assert!(text.parse::<AddressRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_round_trips_through_text() {
        for text in ["10.0.0.2/32", "10.0.0.0/8", "2001:db8::/32", "::1/128"] {
            let range: AddressRange = text.parse().expect("a range");
            assert_eq!(range.to_string(), text);
        }
    }
}
