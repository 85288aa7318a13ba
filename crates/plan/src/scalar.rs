//! A single value of a JSON document: an option, a factor, a label or a value of a draw.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

/// Null, a boolean, a number or a text.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    /// `null`: the option has no value.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number, in base units.
    Integer(i64),
    /// A number with a fraction, in base units.
    Number(f64),
    /// A text.
    Text(Arc<str>),
}

impl Scalar {
    /// Return the number, if the value is a number.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // sizes and times stay far below 2^53
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Integer(integer) => Some(*integer as f64),
            Self::Number(number) => Some(*number),
            Self::Null | Self::Bool(_) | Self::Text(_) => None,
        }
    }

    /// Return the text of this value in an argument; `None` for `null`.
    #[must_use]
    pub fn as_argument(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Bool(value) => Some(value.to_string()),
            Self::Integer(integer) => Some(integer.to_string()),
            Self::Number(number) => Some(number.to_string()),
            Self::Text(text) => Some(text.as_ref().into()),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null, true, false, a number or a text")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, integer: i64) -> Result<Scalar, E> {
        Ok(Scalar::Integer(integer))
    }

    fn visit_u64<E: de::Error>(self, integer: u64) -> Result<Scalar, E> {
        i64::try_from(integer).map(Scalar::Integer).map_err(|_| {
            E::custom(format_args!(
                "expected a whole number below 2^63, found {integer}"
            ))
        })
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.into()))
    }
}
