//! What the derives refuse, and what the compiler says then.

#[test]
fn mistakes_are_refused_where_they_are_made() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
