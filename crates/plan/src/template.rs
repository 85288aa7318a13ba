//! Text with placeholders in braces.

use crate::Error;

/// Value of a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// The value.
    Text(String),
    /// No value here.
    Absent,
    /// Unknown placeholder.
    Unknown,
}

impl<T: ToString> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, |value| Self::Text(value.to_string()))
    }
}

/// Return the text with replaced placeholders. The value of a placeholder is not expanded again, so
/// braces in a path are safe.
///
/// # Errors
/// [`Error::UnknownPlaceholder`], with the result of `known`; [`Error::NoValue`], after a check of
/// the whole text; [`Error::Brace`].
pub(crate) fn expand(
    text: &str,
    value: impl Fn(&str) -> Value,
    known: impl FnOnce() -> String,
) -> Result<String, Error> {
    let mut expanded = String::with_capacity(text.len());
    let mut missing = None;
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        expanded.push_str(&rest[..at]);
        let offset = text.len() - rest.len() + at;
        let brace = &rest[at..];
        if brace.starts_with("{{") || brace.starts_with("}}") {
            expanded.push_str(&brace[..1]);
            rest = &brace[2..];
            continue;
        }
        let (name, after) = placeholder(brace).ok_or_else(|| Error::Brace {
            argument: text.into(),
            offset,
        })?;
        match value(name) {
            Value::Text(value) => expanded.push_str(&value),
            Value::Absent => missing = Some(name),
            Value::Unknown => {
                return Err(Error::UnknownPlaceholder {
                    argument: text.into(),
                    placeholder: name.into(),
                    known: known(),
                });
            }
        }
        rest = after;
    }
    expanded.push_str(rest);
    match missing {
        Some(name) => Err(Error::NoValue {
            argument: text.into(),
            placeholder: name.into(),
        }),
        None => Ok(expanded),
    }
}

/// Return the name in `{name}…` and the text after it.
fn placeholder(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.strip_prefix('{')?.split_once('}')?;
    (!name.contains('{')).then_some((name, after))
}
