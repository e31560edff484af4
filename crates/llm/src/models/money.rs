//! Exact amounts of money.

use std::{fmt, iter::Sum, ops::Add, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The decimal places of an amount.
const PLACES: usize = 9;

/// Nano-dollars in a dollar.
const DOLLAR: u64 = 1_000_000_000;

/// An amount in nano-dollars. Its text has dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoDollars(pub u64);

impl NanoDollars {
    /// Returns the amount in dollars, for people and for limits.
    pub fn dollars(self) -> f64 {
        // Exact up to nine million dollars.
        self.0 as f64 / DOLLAR as f64
    }
}

impl Add for NanoDollars {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for NanoDollars {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for NanoDollars {
    /// Writes dollars with two decimal places, or with four below ten cents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = if self.0 < DOLLAR / 10 { 4 } else { 2 };
        write!(f, "${:.places$}", self.dollars())
    }
}

/// The price of a million tokens.
///
/// Its text, also when serialized, is a decimal number of dollars with at most nine decimal places, such as `0.25`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(NanoDollars);

/// The error of a text that is not a [`Price`].
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid price `{0}`; write dollars per million tokens, with nine decimal places at most, such as `0.25`"
)]
pub struct PriceError(String);

crate::debug_by_chain!(PriceError);

impl Price {
    /// Returns the price of a million tokens.
    pub fn per_million(self) -> NanoDollars {
        self.0
    }
}

impl FromStr for Price {
    type Err = PriceError;

    fn from_str(text: &str) -> Result<Self, PriceError> {
        let wrong = || PriceError(text.chars().take(40).collect());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > PLACES {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let fraction: u64 = format!("{fraction:0<PLACES$}").parse().map_err(|_| wrong())?;
        let nanos = whole.checked_mul(DOLLAR).and_then(|nanos| nanos.checked_add(fraction));
        nanos.map(|nanos| Self(NanoDollars(nanos))).ok_or_else(wrong)
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NanoDollars(nanos) = self.0;
        let fraction = format!("{:0PLACES$}", nanos % DOLLAR);
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{}", nanos / DOLLAR),
            fraction => write!(f, "{}.{fraction}", nanos / DOLLAR),
        }
    }
}

impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(price: D) -> Result<Self, D::Error> {
        String::deserialize(price)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_exact_decimals() {
        for (text, nanos) in [
            ("4", 4_000_000_000),
            ("0.2", 200_000_000),
            ("0.000000001", 1),
            ("0", 0),
            ("12.50", 12_500_000_000),
        ] {
            let price: Price = text.parse().unwrap();
            assert_eq!(price.per_million(), NanoDollars(nanos), "{text}");
            assert_eq!(price.to_string().parse(), Ok(price), "{text}");
        }
        assert_eq!("12.50".parse::<Price>().unwrap().to_string(), "12.5");
        for wrong in ["", ".5", "1.", "-1", "1e3", "0.0000000001", "99999999999", "1,5", "$1", " 1"] {
            assert_eq!(wrong.parse::<Price>(), Err(PriceError(wrong.to_owned())), "{wrong}");
        }
    }

    #[test]
    fn small_amounts_have_more_places() {
        for (nanos, text) in
            [(0, "$0.0000"), (1_240_000, "$0.0012"), (99_000_000, "$0.0990"), (1_005_000_000, "$1.00")]
        {
            assert_eq!(NanoDollars(nanos).to_string(), text);
        }
    }
}
