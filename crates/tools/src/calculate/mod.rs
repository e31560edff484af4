//! `calculate`: evaluates arithmetic expressions with fend.
//!
//! Start at [`calculate()`].

use std::{thread, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use superstep_llm::{FnTool, Tool, ToolCx, ToolError, ToolSpec, timers::check_timers, tool_fn};
use tokio_util::sync::CancellationToken;

use crate::call::{REPEATABLE, cancelled, crashed, grouped, stop_signal};

const MAX_TIME: Duration = Duration::from_secs(5);
const MAX_EXPRESSION_BYTES: usize = 1_000;
const MAX_RESULT_BYTES: usize = 4_000;
/// The prefix of a rounded result.
const APPROXIMATELY: &str = "approx. ";
/// fend parses and evaluates by recursion; unoptimized, the deepest expression of the length above takes half of it.
const STACK_BYTES: usize = 64 << 20;
/// Maximum number of times fend may parse one part of an expression; see [`parses`].
const MAX_PARSES: u64 = 20_000;

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct Calculate {
    /// What to calculate, such as `37*91+5`, `20% of 50`, `sqrt(2) to 5 dp` or `5 km to miles`.
    expression: String,
}

/// The tool `calculate{expression}`: exact arithmetic, functions and units.
///
/// It knows no exchange rates, no random numbers and no date, and stops after five seconds. It rejects fend's
/// user-defined functions, text, bit shifts and dice, because these can run without end and cannot be
/// interrupted.
/// # Limits
/// fend computes `floor`, `ceil`, `round`, `sinh` and `cosh` in binary floating point and
/// silently truncates at 2^64. The tool description states this.
pub fn calculate() -> impl Tool {
    let spec = ToolSpec::of::<Calculate>(
        "calculate",
        "Calculates an arithmetic expression: numbers of any size, fractions, percentages, functions such as sqrt, \
         ln or sin, and conversion of units. floor, ceil, round, sinh and cosh are exact below 2^53 and wrong \
         above 2^64.",
    );
    let tool: FnTool<Calculate, _> = tool_fn(spec, |args: Calculate, cx: ToolCx| run(args.expression, cx));
    tool.with_behaviour(REPEATABLE).with_changes_files(false)
}

async fn run(expression: String, cx: ToolCx) -> Result<String, ToolError> {
    check(&expression)?;
    check_timers()?;
    let (stop, _guard) = stop_signal(&cx);
    let stopped = stop.clone();
    // Not only the thread: a blocking task also keeps a paused clock from jumping to the time limit.
    let task = tokio::task::spawn_blocking(move || {
        let thread = thread::Builder::new().name("calculate".into()).stack_size(STACK_BYTES);
        match thread.spawn(move || evaluate(&expression, &stopped)) {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(crashed())),
            Err(error) => Err(ToolError::Failed(format!("the calculation could not be started: {error}"))),
        }
    });
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(cancelled()),
        done = task => done.unwrap_or_else(|_| Err(crashed())),
        () = tokio::time::sleep(MAX_TIME) => Err(ToolError::Failed(format!(
            "the calculation was stopped after {} s; make it smaller",
            MAX_TIME.as_secs()
        ))),
    }
}

// No other evaluator in pure Rust has exact numbers of any size, units and an interrupt: numbat, kalk and exmex
// compute in binary floating point, rink cannot be stopped, evalexpr and abaco are under the AGPL.
fn evaluate(expression: &str, stop: &CancellationToken) -> Result<String, ToolError> {
    let mut context = fend_core::Context::new();
    context.disable_rng();
    let mut fend = |expression: &str| {
        fend_core::evaluate_with_interrupt(expression, &mut context, &Stop(stop))
            .map(|result| result.get_main_result().to_owned())
            .map_err(|error| ToolError::Failed(format!("this cannot be calculated: {error}")))
    };
    let mut text = fend(expression)?;
    if text.is_empty() {
        return Err(ToolError::Failed("the expression has no value".into()));
    }
    if text.len() > MAX_RESULT_BYTES {
        return Err(ToolError::Failed(format!(
            "the result is {} characters long, more than {}; round it, as in `2^0.5 to 10 sf`",
            grouped(text.len() as u64),
            grouped(MAX_RESULT_BYTES as u64)
        )));
    }
    if text.starts_with(APPROXIMATELY) {
        text = rounded(text, |places| fend(&format!("ans to {places} dp")))?;
    }
    Ok(text)
}

/// Returns `text` if its digits are right; otherwise the value with the next number of decimal places that prints it right.
///
/// If fend 1.5.9 rounds up and the last retained digits are zeros, it drops these zeros and increments the digit before them:
/// `1.006 to 2 dp` gives 2. A number with all requested places, or the same number with one more place, is right.
fn rounded(
    text: String,
    mut print: impl FnMut(usize) -> Result<String, ToolError>,
) -> Result<String, ToolError> {
    let mut requested = numbers(&text).map(places).max().unwrap_or(0);
    let mut shown = print(requested)?;
    if shown != text {
        requested += 1;
        shown = print(requested)?;
    }
    loop {
        let longer = print(requested + 1)?;
        let agree = numbers(&shown)
            .zip(numbers(&longer))
            .all(|(number, longer)| places(number) == requested || number == longer);
        if agree && numbers(&shown).count() == numbers(&longer).count() {
            return Ok(shown);
        }
        (shown, requested) = (longer, requested + 1);
    }
}

/// Returns the numbers of a result, in any base.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix(APPROXIMATELY).unwrap_or(text);
    let words = text.split(|c: char| !c.is_ascii_hexdigit() && c != '.');
    words.filter(|word| word.contains(|c: char| c.is_ascii_digit() || c == '.'))
}

fn places(number: &str) -> usize {
    number.split_once('.').map_or(0, |(_, fraction)| fraction.len())
}

struct Stop<'a>(&'a CancellationToken);

impl fend_core::Interrupt for Stop<'_> {
    fn should_interrupt(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Rejects expressions that are too long, and those that fend evaluates without checking its interrupt, so that the time limit
/// would not end them: recursive functions overflow the stack, shifts take any number of bits, dice are multiplied out, and
/// nested parentheses are parsed in exponential time.
fn check(expression: &str) -> Result<(), ToolError> {
    if expression.len() > MAX_EXPRESSION_BYTES {
        return Err(ToolError::InvalidArguments(format!(
            "`expression` has {} bytes, more than {}; calculate it in parts",
            grouped(expression.len() as u64),
            grouped(MAX_EXPRESSION_BYTES as u64)
        )));
    }
    let has = |parts: &[&str]| parts.iter().any(|part| expression.contains(part));
    let parses = parses(expression);
    let refusals = [
        (expression.trim().is_empty(), "`expression` is empty"),
        (
            has(&["\\", "λ", ":", "=>"]),
            "`expression` defines a function, which is not supported; write the calculation out",
        ),
        (
            has(&["\"", "'", "#", "@"]),
            "`expression` has a quote, `#` or `@`, which is not supported; write numbers, operators and units",
        ),
        (
            has(&["<<", ">>"]),
            "`expression` shifts bits, which is not supported; multiply or divide by a power of 2",
        ),
        (has_dice(expression), "`expression` has dice such as `2d6`, which are not supported"),
        (parses.is_none(), "the parentheses of `expression` do not match"),
        (
            parses.is_some_and(|parses| parses > MAX_PARSES),
            "`expression` has too deeply nested parentheses; calculate it in parts",
        ),
    ];
    match refusals.into_iter().find(|(is_refused, _)| *is_refused) {
        Some((_, why)) => Err(ToolError::InvalidArguments(why.to_owned())),
        None => Ok(()),
    }
}

/// Returns whether fend would parse dice: a `d` at the start or end of a number, followed by a digit.
fn has_dice(expression: &str) -> bool {
    let mut words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| {
        let mut dice = word.match_indices('d').filter(|(at, _)| !word[..*at].ends_with(char::is_alphabetic));
        !word.starts_with("0x")
            && dice.any(|(at, _)| word[at + 1..].starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// Returns an upper bound on how often fend parses the innermost part of an expression; `None` if its
/// parentheses do not match.
///
/// After each term of a sum, fend tries to parse the rest as an implicit addition; after a number, it tries
/// to parse a parenthesis as a fraction. Both attempts are discarded and repeated in each parenthesis.
fn parses(expression: &str) -> Option<u64> {
    // The parses and the signs of each open parenthesis.
    let mut levels = vec![(1_u64, 0_u64)];
    let mut most = 1;
    let mut after_number = false;
    for c in expression.chars().filter(|c| !c.is_whitespace()) {
        let (parses, signs) = levels.last_mut()?;
        match c {
            '(' => {
                let inner = parses.saturating_mul((*signs + 1) * if after_number { 2 } else { 1 });
                most = most.max(inner);
                levels.push((inner, 0));
            }
            ')' => drop(levels.pop()),
            '+' | '-' | '\u{2212}' => *signs += 1,
            _ => {}
        }
        // Also matches hexadecimal digits and exponents.
        after_number = c.is_ascii_digit() || c == '.' || (after_number && c.is_alphanumeric());
    }
    (levels.len() == 1).then_some(most)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing;

    async fn value(expression: &str) -> String {
        testing::call(&calculate(), json!({"expression": expression})).await
    }

    async fn refusal(expression: &str) -> String {
        testing::refusal(&calculate(), json!({"expression": expression})).await
    }

    #[tokio::test]
    async fn calculates_numbers_functions_and_units() {
        for (expression, expected) in [
            ("37*91+5", "3372"),
            ("2/3", "approx. 0.6666666667"),
            ("0.1+0.2", "0.3"),
            ("20% of 50", "10"),
            ("sqrt(2) to 5 dp", "approx. 1.41421"),
            ("5 km to m", "5000 m"),
            ("0x1d6", "0x1d6"),
            ("2^64", "18446744073709551616"),
            ("x = 5; x * 2", "10"),
        ] {
            assert_eq!(value(expression).await, expected, "{expression}");
        }
    }

    #[tokio::test]
    async fn digits_that_fend_prints_wrong_are_printed_with_more_places() {
        for (expression, expected) in [
            ("((1+2)*(3+4))/(5*(6+7))", "approx. 0.32307692308"),
            ("-21/65 m", "approx. -0.32307692308 m"),
            ("1.006 to 2 dp", "1.006"),
            ("-0.06 to 1 dp", "-0.06"),
            ("1999.006 to 2 dp", "1999.006"),
            ("0.5006 + 1.062i to 3 dp", "0.5006 + 1.062i"),
            ("666 to 2 sf", "666"),
            ("(1 + sqrt(2) * i)", "approx. 1 + 1.4142135624i"),
            ("0.9996 to 3 dp", "approx. 1.000"),
            ("1.00006 to 3 dp", "approx. 1"),
            ("1e-20/3", "approx. 0"),
            ("2/3 to hex", "approx. 0.aaaaaaaaab"),
        ] {
            assert_eq!(value(expression).await, expected, "{expression}");
        }
    }

    #[test]
    fn a_printout_counts_if_it_has_all_places_or_another_place_changes_nothing() {
        let printed = |text: &str, lines: &[(usize, &str)]| {
            let print = |places| {
                let line = lines.iter().find(|(asked, _)| *asked == places);
                Ok(line.map(|(_, text)| (*text).to_owned()).expect("one of the lines"))
            };
            rounded(text.to_owned(), print).unwrap()
        };
        let two_thirds = "approx. 0.6666666667";
        assert_eq!(printed(two_thirds, &[(10, two_thirds), (11, "approx. 0.66666666667")]), two_thirds);
        // The wrong digit may be in the first or in a later printout, and beside a right number.
        assert_eq!(
            printed(
                "approx. 2",
                &[(0, "approx. 1"), (1, "approx. 1"), (2, "approx. 2"), (3, "1.006"), (4, "1.006")]
            ),
            "1.006"
        );
        assert_eq!(
            printed(
                "approx. 0.6 + 1.062i",
                &[(3, "approx. 0.6 + 1.062i"), (4, "0.5006 + 1.062i"), (5, "0.5006 + 1.062i")]
            ),
            "0.5006 + 1.062i"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_stands_still_or_jumps_stops_no_calculation() {
        assert_eq!(value("fibonacci 1000 mod 10").await, "5");
    }

    #[tokio::test]
    async fn invalid_expressions_are_errors_with_a_reason() {
        for (expression, expected) in [
            ("", "`expression` is empty"),
            ("hello", "this cannot be calculated: unknown identifier 'hello'"),
            ("1/0", "this cannot be calculated: division by zero"),
            ("1 usd to eur", "this cannot be calculated: exchange rates are not available"),
            ("()", "the expression has no value"),
            ("(1", "the parentheses of `expression` do not match"),
            ("1)", "the parentheses of `expression` do not match"),
            ("2d6", "`expression` has dice such as `2d6`, which are not supported"),
            ("1 + d6", "`expression` has dice such as `2d6`, which are not supported"),
            (
                "1 << 1000000000",
                "`expression` shifts bits, which is not supported; multiply or divide by a power of 2",
            ),
            (
                "'a'",
                "`expression` has a quote, `#` or `@`, which is not supported; write numbers, operators and units",
            ),
        ] {
            assert_eq!(refusal(expression).await, expected, "{expression}");
        }
    }

    #[tokio::test]
    async fn endless_recursion_is_rejected() {
        for expression in
            ["(x: x x) (x: x x)", r"(\x. x x) (\x. x x)", "(x => x x) (x => x x)", "(λx.x x)(λx.x x)"]
        {
            assert_eq!(
                refusal(expression).await,
                "`expression` defines a function, which is not supported; write the calculation out"
            );
        }
    }

    #[tokio::test]
    async fn a_calculation_without_end_is_stopped() {
        let endless = ["9^9^9^9", "10000000!", "10000000 choose 5000000"];
        for refused in futures::future::join_all(endless.map(refusal)).await {
            assert_eq!(refused, "the calculation was stopped after 5 s; make it smaller");
        }
    }

    #[tokio::test]
    async fn cancelling_stops_a_calculation() {
        let cancelled = testing::cancelled(&calculate(), json!({"expression": "9^9^9^9"})).await;
        assert_eq!(cancelled, Err(ToolError::Failed("cancelled".into())));
    }

    #[tokio::test]
    async fn a_long_result_and_a_long_expression_are_refused() {
        assert_eq!(value("10^3999").await.len(), 4_000);
        assert_eq!(
            refusal("10^4000").await,
            "the result is 4,001 characters long, more than 4,000; round it, as in `2^0.5 to 10 sf`"
        );
        assert_eq!(
            refusal(&"1".repeat(1_001)).await,
            "`expression` has 1,001 bytes, more than 1,000; calculate it in parts"
        );
    }

    #[tokio::test]
    async fn the_deepest_recursion_fits_the_stack() {
        for (open, close) in [("(", ")"), ("-(", ")"), ("/", ""), ("-", ""), ("x=", ""), ("2^", "")] {
            let depth = (MAX_EXPRESSION_BYTES - 1) / (open.len() + close.len());
            let expression = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            // Any answer is accepted: an overflow would have ended the process.
            let _ = calculate().call(json!({"expression": expression}), testing::cx()).await;
        }
    }

    #[tokio::test]
    async fn nesting_that_takes_exponential_time_to_parse_is_refused() {
        for nested in ["1(", "1 - 2 (", "1+1+1+1+1+1(", "0xff (", "1 feet 2("] {
            let expression = format!("{}1{}", nested.repeat(20), ")".repeat(20));
            assert_eq!(
                refusal(&expression).await,
                "`expression` has too deeply nested parentheses; calculate it in parts",
                "{nested}"
            );
        }
        assert_eq!(value("1+(1+(1+(1+(1+(1+(1+(1+(1+(1)))))))))").await, "10");
    }
}
