//! Suggestions for misspelt names.

/// The similarity from which on a name was probably meant.
const SIMILAR: f64 = 0.8;

/// Returns the known name that was probably meant.
pub fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    let near = known.iter().copied().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    near.filter(|near| likeness(near) > SIMILAR)
}
