//! The prices of a model.

use serde::{Deserialize, Serialize};

use super::money::{NanoDollars, Price};
use crate::Usage;

/// The prices of a million tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// The input that no cache has.
    pub input: Price,
    /// The input that is read from the provider's cache; `None` for the price of other input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Price>,
    /// The input that is written to the provider's cache; `None` for the price of other input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Price>,
    /// The input that is written to a cache of one hour; `None` for the price of other written input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<Price>,
    /// The output.
    pub output: Price,
    /// The reasoning; `None` for the price of other output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Price>,
    /// The prices of requests with a long input, which apply to all their tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<LongPrices>,
}

/// The prices of a request whose input is longer than a number of tokens. The others are those of [`Prices`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LongPrices {
    /// The length of the input up to which these prices do not apply.
    pub tokens: u64,
    /// See [`Prices::input`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Price>,
    /// See [`Prices::cached`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<Price>,
    /// See [`Prices::cache_write`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Price>,
    /// See [`Prices::cache_write_1h`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<Price>,
    /// See [`Prices::output`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Price>,
    /// See [`Prices::reasoning`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Price>,
}

impl Prices {
    /// Returns the cost of one request, rounded to a nano-dollar.
    pub fn cost(&self, usage: Usage) -> NanoDollars {
        let long = self.above.iter().filter(|long| usage.input_tokens > long.tokens);
        let long = long.max_by_key(|long| long.tokens);
        let of = |price: fn(&LongPrices) -> Option<Price>, usual| long.and_then(price).or(usual);
        let input = of(|long| long.input, Some(self.input)).unwrap_or(self.input);
        let output = of(|long| long.output, Some(self.output)).unwrap_or(self.output);
        let Usage {
            input_tokens,
            output_tokens,
            cached_tokens,
            cache_write_tokens,
            cache_write_1h_tokens,
            reasoning_tokens,
        } = usage;
        let written = of(|long| long.cache_write, self.cache_write).or(Some(input));
        let written_1h = of(|long| long.cache_write_1h, self.cache_write_1h).or(written);
        let parts = [
            (input_tokens.saturating_sub(cached_tokens).saturating_sub(cache_write_tokens), Some(input)),
            (cached_tokens, of(|long| long.cached, self.cached).or(Some(input))),
            (cache_write_tokens.saturating_sub(cache_write_1h_tokens), written),
            (cache_write_1h_tokens, written_1h),
            (output_tokens.saturating_sub(reasoning_tokens), Some(output)),
            (reasoning_tokens, of(|long| long.reasoning, self.reasoning).or(Some(output))),
        ];
        let priced = parts.into_iter().filter_map(|(tokens, price)| Some((tokens, price?)));
        let millionths = priced.map(|(tokens, price)| u128::from(tokens) * u128::from(price.per_million().0));
        let nanos = (millionths.sum::<u128>() + 500_000) / 1_000_000;
        NanoDollars(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(text: &str) -> Price {
        text.parse().unwrap()
    }

    fn prices() -> Prices {
        Prices {
            input: price("4"),
            cached: Some(price("0.2")),
            cache_write: Some(price("5")),
            cache_write_1h: None,
            output: price("20"),
            reasoning: None,
            above: Vec::new(),
        }
    }

    #[test]
    fn each_part_of_the_tokens_has_its_price() {
        let usage = Usage {
            cached_tokens: 600,
            cache_write_tokens: 300,
            reasoning_tokens: 10,
            ..Usage::new(1_000, 50)
        };
        // 100 * 4 + 600 * 0.2 + 300 * 5 + 50 * 20 millionths of a dollar.
        assert_eq!(prices().cost(usage), NanoDollars(3_020_000));
        // An hour in the cache costs 8 instead of 5.
        let hour = Usage { cache_write_1h_tokens: 200, ..usage };
        let priced = Prices { cache_write_1h: Some(price("8")), ..prices() };
        assert_eq!(priced.cost(hour), NanoDollars(3_620_000));
        assert_eq!(prices().cost(hour), NanoDollars(3_020_000));
        let dear = Prices { reasoning: Some(price("30")), ..prices() };
        assert_eq!(dear.cost(usage), NanoDollars(3_120_000));
        let plain = Prices { cached: None, cache_write: None, ..prices() };
        assert_eq!(plain.cost(usage), NanoDollars(5_000_000), "parts without a price cost as the whole");
    }

    #[test]
    fn a_long_input_changes_the_prices_of_all_its_tokens() {
        let long = |tokens, input| LongPrices { tokens, input: Some(price(input)), ..LongPrices::default() };
        let prices = Prices { above: vec![long(200, "40"), long(100, "8")], ..prices() };
        for (input, cost) in [(100, 400_000), (101, 808_000), (200, 1_600_000), (201, 8_040_000)] {
            assert_eq!(prices.cost(Usage::new(input, 0)), NanoDollars(cost), "{input}");
        }
    }

    #[test]
    fn costs_are_rounded_and_saturate() {
        let cheap = Prices { input: price("0.0005"), ..prices() };
        assert_eq!(cheap.cost(Usage::new(1, 0)), NanoDollars(1));
        assert_eq!(cheap.cost(Usage::new(u64::MAX, u64::MAX)), NanoDollars(u64::MAX));
        let more_parts_than_tokens = Usage { cached_tokens: 5, ..Usage::new(2, 0) };
        assert_eq!(prices().cost(more_parts_than_tokens), NanoDollars(1_000));
    }
}
