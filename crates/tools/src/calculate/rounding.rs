//! Correction of a rounding bug in fend 1.5.9.
//!
//! If fend rounds up and the last retained digits are zeros, it drops these zeros and increments the digit
//! before them: `1.006 to 2 dp` gives 2, and 21/65 gives 0.323076924. Of two printouts of one value whose
//! lengths differ by one digit, at most one can be wrong, because one would need a zero where the other needs
//! five or more. Start at [`repair`].

/// Corrects the numbers of `printed` by two longer printouts of the same value, the second one digit longer
/// than the first. Returns `printed` unchanged if it is correct, or if the three differ in more than digits.
pub(super) fn repair(printed: &str, long: &str, longer: &str) -> String {
    let (parts, long, longer) = (Parts::of(printed), Parts::of(long), Parts::of(longer));
    if parts.between != long.between || parts.between != longer.between {
        return printed.into();
    }
    let mut numbers = parts.numbers.iter().zip(long.numbers.iter().zip(&longer.numbers)).map(
        // The bug makes a number larger, so the smaller one is right.
        |(number, (long, longer))| number.repaired(if long.is_below(longer) { long } else { longer }),
    );
    let mut text = String::from(if printed.starts_with(APPROXIMATELY) { APPROXIMATELY } else { "" });
    for between in &parts.between {
        text.push_str(between);
        text.extend(numbers.next());
    }
    text
}

/// Returns the largest number of decimal places among the numbers of `printed`.
pub(super) fn places(printed: &str) -> usize {
    Parts::of(printed).numbers.iter().map(|number| number.fraction.len()).max().unwrap_or(0)
}

/// The prefix of a rounded result.
pub(super) const APPROXIMATELY: &str = "approx. ";

/// A result split into its numbers and the texts between them; there is one more text than numbers.
struct Parts<'a> {
    numbers: Vec<Number<'a>>,
    between: Vec<&'a str>,
}

struct Number<'a> {
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Self {
        let mut rest = text.strip_prefix(APPROXIMATELY).unwrap_or(text);
        let (mut numbers, mut between) = (Vec::new(), Vec::new());
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            between.push(&rest[..start]);
            let whole;
            (whole, rest) = digits(&rest[start..]);
            let mut fraction = "";
            if let Some(point) = rest.strip_prefix('.') {
                (fraction, rest) = digits(point);
            }
            numbers.push(Number { whole, fraction });
        }
        between.push(rest);
        Self { numbers, between }
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

impl Number<'_> {
    fn is_below(&self, other: &Self) -> bool {
        let zeros = |number: &Self| number.fraction.trim_end_matches('0').to_owned();
        (self.whole.len(), self.whole, zeros(self)) < (other.whole.len(), other.whole, zeros(other))
    }

    /// Returns the corrected number if this one is `exact` truncated and incremented before dropped zeros;
    /// otherwise itself.
    fn repaired(&self, exact: &Self) -> String {
        let shown = self.fraction.len();
        let (kept, cut_off) = exact.fraction.split_at(shown.min(exact.fraction.len()));
        let kept = format!("{}{kept:0<shown$}", exact.whole);
        let printed = format!("{}{}", self.whole, self.fraction);
        if counted_up(&kept) != printed || !matches!(cut_off.bytes().next(), None | Some(b'0')) {
            return if shown == 0 { self.whole.into() } else { format!("{}.{}", self.whole, self.fraction) };
        }
        let zeros = cut_off.len() - cut_off.trim_start_matches('0').len();
        let (whole, mut fraction) = (&kept[..exact.whole.len()], kept[exact.whole.len()..].to_owned());
        if zeros > 0 && zeros < cut_off.len() {
            // The last of the zeros is the digit that should have been incremented.
            fraction.extend(std::iter::repeat_n('0', zeros - 1));
            fraction.push('1');
        }
        if fraction.is_empty() { whole.into() } else { format!("{whole}.{fraction}") }
    }
}

/// Returns a decimal digit string plus one.
fn counted_up(digits: &str) -> String {
    let nines = digits.len() - digits.trim_end_matches('9').len();
    let (head, last) = match digits[..digits.len() - nines].char_indices().last() {
        Some((at, last)) => (&digits[..at], char::from_u32(u32::from(last) + 1).expect("a digit below 9")),
        None => ("", '1'),
    };
    format!("{head}{last}{}", "0".repeat(nines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digit_rounded_up_before_dropped_zeros_is_corrected() {
        for (printed, long, longer, expected) in [
            ("approx. 2", "1.006", "1.006", "approx. 1.01"),
            (
                "approx. -0.323076924",
                "approx. -0.3230769230769",
                "approx. -0.32307692307692",
                "approx. -0.3230769231",
            ),
            (
                "approx. 0.909090910 m",
                "approx. 0.909090909091 m",
                "approx. 0.909090909090910 m",
                "approx. 0.9090909091 m",
            ),
            ("approx. 2000", "1999.006", "1999.006", "approx. 1999.01"),
            ("approx. 0.6", "approx. 0.5", "approx. 0.5", "approx. 0.5"),
            ("approx. 0.2 + 3i", "0.106 + 2.0007i", "0.106 + 2.0007i", "approx. 0.11 + 2.001i"),
        ] {
            assert_eq!(repair(printed, long, longer), expected);
        }
    }

    #[test]
    fn a_right_result_stays_as_it_is() {
        for (printed, long, longer) in [
            ("approx. 0.6666666667", "approx. 0.666666666666667", "approx. 0.6666666666666667"),
            ("approx. 1.000", "0.9996", "0.9996"),
            ("approx. 0.5", "approx. 0.50000000000001", "approx. 0.500000000000012"),
            (
                "approx. 0.4142135624 + 0i",
                "approx. 0.41421356237 + 0.00001i",
                "approx. 0.414213562373 + 0.000012i",
            ),
            ("approx. 0", "approx. 0", "approx. 0"),
            ("approx. 3 feet", "2.006 feet 1 inch", "2.006 feet 1 inch"),
        ] {
            assert_eq!(repair(printed, long, longer), printed);
        }
    }

    #[test]
    fn of_two_long_printouts_the_faulty_one_is_not_believed() {
        assert_eq!(
            repair("approx. 0.6666666667", "approx. 0.66666666666667", "approx. 0.67"),
            "approx. 0.6666666667"
        );
        assert_eq!(repair("approx. 0.51", "approx. 0.6", "approx. 0.50006"), "approx. 0.5001");
    }

    #[test]
    fn the_most_decimal_places_count() {
        assert_eq!(places("approx. 0.25 + 1.5i"), 2);
        assert_eq!(places("none"), 0);
    }
}
