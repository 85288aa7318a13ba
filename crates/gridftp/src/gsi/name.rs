//! Certificate names in the notation of users and grid-mapfiles: `/O=Grid/CN=Somebody`.

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::name::Name;

pub(super) const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Short names of attributes in OpenSSL (`crypto/objects/objects.txt`).
const SHORT: [(&str, &str); 16] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.42", "GN"),
    ("2.5.4.46", "dnQualifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Other spellings of attributes in hand-written files.
const VARIANTS: [(&str, &str); 4] = [
    ("/Email=", "/emailAddress="),
    ("/E=", "/emailAddress="),
    ("/USERID=", "/UID="),
    ("/UserID=", "/UID="),
];

/// Returns a name on one line, in the format of `X509_NAME_oneline` of OpenSSL: bytes outside
/// printable ASCII become `\xHH`.
pub(super) fn one_line(name: &Name) -> String {
    let mut text = String::new();
    for attribute in name.0.iter().flat_map(|relative| relative.0.iter()) {
        let oid = attribute.oid.to_string();
        let short = SHORT.iter().find(|(known, _)| *known == oid);
        text.push('/');
        text.push_str(short.map_or(&oid, |(_, short)| short));
        text.push('=');
        for &byte in attribute.value.value() {
            if (b' '..=b'~').contains(&byte) {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("\\x{byte:02X}"));
            }
        }
    }
    text
}

/// Returns `true` if two texts denote the same name. Old and new attribute names are equivalent.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    normal(one) == normal(other)
}

pub(super) fn normal(text: &str) -> String {
    VARIANTS
        .iter()
        .fold(text.to_owned(), |text, (variant, usual)| {
            text.replace(variant, usual)
        })
}

/// Returns the value of the last attribute if it is a single common name.
pub(super) fn last_common_name(name: &Name) -> Option<&[u8]> {
    let last = name.0.last()?;
    match last.0.as_slice() {
        [AttributeTypeAndValue { oid, value }] if *oid == COMMON_NAME => Some(value.value()),
        _ => None,
    }
}

/// Returns `true` if `subject` is `issuer` plus one common name, as RFC 3820 section 3.4 requires
/// for proxies.
pub(super) fn extends(subject: &Name, issuer: &Name) -> bool {
    let longer = subject.0.len() == issuer.0.len() + 1;
    longer && subject.0.starts_with(&issuer.0) && last_common_name(subject).is_some()
}
