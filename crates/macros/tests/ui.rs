//! The errors of the derives, and the compiler's output for them.

#[test]
fn mistakes_are_refused_where_they_are_made() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
