//! Addresses of data connections, in the three notations of FTP: `h1,h2,h3,h4,p1,p2` (RFC 959),
//! `|1|address|port|` and `|||port|` (RFC 2428).

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::{FtpError, number};

/// Maximum addresses (stripes) in one SPOR command or SPAS reply.
pub const MAX_STRIPES: usize = 256;

/// Address of a passive listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passive {
    /// Address and port.
    Full(SocketAddr),
    /// A port on the host of the control connection.
    Port(u16),
}

impl Passive {
    /// Returns the address. Uses the host of the control connection if the reply has none or an
    /// unspecified one.
    ///
    /// Keeps any other host: data movers of dCache are not on the host of its door.
    #[must_use]
    pub fn resolve(self, control: IpAddr) -> SocketAddr {
        match self {
            Self::Full(address) if !address.ip().is_unspecified() => address,
            Self::Full(address) => SocketAddr::new(control, address.port()),
            Self::Port(port) => SocketAddr::new(control, port),
        }
    }
}

/// Reads `h1,h2,h3,h4,p1,p2`.
///
/// # Errors
/// If the text is not six numbers from 0 to 255.
pub fn parse_host_port(text: &[u8]) -> Result<SocketAddrV4, FtpError> {
    let wrong = || FtpError::malformed("address", "six numbers from 0 to 255, with commas", text);
    let mut fields = [0_u8; 6];
    let mut items = text.split(|&byte| byte == b',');
    for field in &mut fields {
        let item = items.next().ok_or_else(wrong)?;
        *field = number(item.trim_ascii()).ok_or_else(wrong)?;
    }
    if items.next().is_some() {
        return Err(wrong());
    }
    let [a, b, c, d, high, low] = fields;
    let port = u16::from_be_bytes([high, low]);
    Ok(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port))
}

/// Writes `h1,h2,h3,h4,p1,p2`.
#[must_use]
pub fn write_host_port(address: SocketAddrV4) -> String {
    let [a, b, c, d] = address.ip().octets();
    let [high, low] = address.port().to_be_bytes();
    format!("{a},{b},{c},{d},{high},{low}")
}

/// Reads `|family|address|port|`; family and address can both be empty.
///
/// # Errors
/// If the form is wrong, the family is not 1 or 2, or the address has another family.
pub fn parse_extended(text: &[u8]) -> Result<Passive, FtpError> {
    let wrong = || FtpError::malformed("address", "`|1|192.0.2.1|port|` or `|||port|`", text);
    let (&delimiter, _) = text.split_first().ok_or_else(wrong)?;
    if !(33..=126).contains(&delimiter) {
        return Err(wrong());
    }
    let fields: Vec<_> = text.split(|&byte| byte == delimiter).collect();
    let [b"", family, host, port, b""] = fields[..] else {
        return Err(wrong());
    };
    let port = number(port).ok_or_else(wrong)?;
    if family.is_empty() && host.is_empty() {
        return Ok(Passive::Port(port));
    }
    let host: IpAddr = std::str::from_utf8(host)
        .ok()
        .and_then(|host| host.parse().ok())
        .ok_or_else(wrong)?;
    match (family, host) {
        (b"1", IpAddr::V4(_)) | (b"2", IpAddr::V6(_)) => {
            Ok(Passive::Full(SocketAddr::new(host, port)))
        }
        _ => Err(wrong()),
    }
}

/// Writes `|family|address|port|`.
#[must_use]
pub fn write_extended(address: SocketAddr) -> String {
    let family = if address.is_ipv4() { 1 } else { 2 };
    format!("|{family}|{}|{}|", address.ip(), address.port())
}

/// Reads an address of SPOR or of a SPAS reply, in either notation.
///
/// # Errors
/// As [`parse_host_port`] and [`parse_extended`]; an address without a host.
pub fn parse_either(text: &[u8]) -> Result<SocketAddr, FtpError> {
    if text.first().is_some_and(u8::is_ascii_digit) {
        return parse_host_port(text).map(SocketAddr::V4);
    }
    match parse_extended(text)? {
        Passive::Full(address) => Ok(address),
        Passive::Port(_) => Err(FtpError::malformed("address", "one with a host", text)),
    }
}

/// Writes an address, in the older notation if possible.
#[must_use]
pub fn write_either(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => write_host_port(address),
        SocketAddr::V6(_) => write_extended(address),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn addresses_survive_writing_and_reading(host: IpAddr, port: u16) {
            let address = SocketAddr::new(host, port);
            prop_assert_eq!(parse_either(write_either(address).as_bytes()).unwrap(), address);
            prop_assert_eq!(
                parse_extended(write_extended(address).as_bytes()).unwrap(), Passive::Full(address)
            );
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text: Vec<u8>) {
            let _ = (parse_host_port(&text), parse_extended(&text), parse_either(&text));
        }
    }

    #[test]
    fn examples_of_rfc_2428_section_2_are_read() {
        let v4 = parse_extended(b"|1|132.235.1.2|6275|").unwrap();
        assert_eq!(v4, Passive::Full("132.235.1.2:6275".parse().unwrap()));
        let v6 = parse_extended(b"|2|1080::8:800:200C:417A|5282|").unwrap();
        let expected = "[1080::8:800:200C:417A]:5282".parse().unwrap();
        assert_eq!(v6, Passive::Full(expected));
        assert_eq!(parse_extended(b"|||6446|").unwrap(), Passive::Port(6446));
        for wrong in [
            "|1|::1|1|",
            "|3|1.2.3.4|1|",
            "|1|1.2.3.4|65536|",
            "|||1",
            "",
        ] {
            parse_extended(wrong.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn an_unspecified_host_is_replaced_by_that_of_the_control_connection() {
        let control = "192.0.2.7".parse().unwrap();
        let resolve = |text: &[u8]| Passive::Full(parse_either(text).unwrap()).resolve(control);
        assert_eq!(resolve(b"0,0,0,0,4,1"), "192.0.2.7:1025".parse().unwrap());
        assert_eq!(resolve(b"10,0,0,9,4,1"), "10.0.0.9:1025".parse().unwrap());
    }
}
