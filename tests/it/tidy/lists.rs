//! Lists of the code that stand in pages or in other places as well.

use std::{collections::BTreeSet, fs};

use superstep::state::JsonReducer;

use super::{root, sources};

/// Returns the parts of a text between two marks.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("`{begin}` is missing"));
    rest.split_once(end).unwrap_or_else(|| panic!("`{end}` is missing")).0
}

/// Returns the names in the first column of a table, of which each code span begins with one.
fn first_column(table: &str) -> BTreeSet<String> {
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    spans.map(|span| span.split(' ').next().unwrap_or_default().to_owned()).collect()
}

/// Returns the keywords of the built-in reducers.
fn built_in() -> BTreeSet<String> {
    let source = fs::read_to_string(root().join("crates/state/src/reducer.rs")).unwrap();
    let list = between(&source, "pub mod reducers {", "};").replace(',', " , ");
    let names = list.split(" as ").skip(1).filter_map(|name| name.split_whitespace().next());
    let names: BTreeSet<_> = names.chain(["barrier"]).map(str::to_owned).collect();
    assert!(names.contains("append") && names.len() > 5, "{names:?}");
    names
}

#[test]
fn every_built_in_reducer_is_in_the_table_of_the_guide() {
    let guide = fs::read_to_string(root().join("docs/state.md")).unwrap();
    // With a function or a type of one's own.
    let all =
        built_in().into_iter().chain(["fold_with".to_owned(), "with".to_owned()]).collect::<BTreeSet<_>>();
    let of_guide = between(&guide, "| attribute | how writes are folded | writers per superstep |", "\n\n");
    assert_eq!(first_column(of_guide), all, "the first table of docs/state.md");
}

#[test]
fn every_built_in_reducer_is_one_of_json_states_with_a_row_in_the_guide() {
    // The error lists the names.
    let error = serde_json::from_str::<JsonReducer>("\"?\"").unwrap_err().to_string();
    let names: BTreeSet<_> = error.split('`').skip(3).step_by(2).map(str::to_owned).collect();
    assert_eq!(names, built_in());
    let guide = fs::read_to_string(root().join("docs/state.md")).unwrap();
    let table = between(&guide, "| reducer | writes | value before the first write |", "\n\n");
    // Beside the reducers its first column names these keywords.
    let keywords = ["default", "names"].map(str::to_owned);
    let found: BTreeSet<_> =
        first_column(table).into_iter().filter(|name| !keywords.contains(name)).collect();
    assert_eq!(found, names, "the table of JSON reducers in docs/state.md");
}

/// Two crates that spell such a name differently would not find the thread of each other.
#[test]
fn the_names_of_the_drivers_own_threads_are_defined_once() {
    for name in ["$inbox", "$keys"] {
        let with_name: Vec<_> = sources("crates")
            .into_iter()
            .filter(|(file, text)| {
                let is_test = file.components().any(|part| part.as_os_str() == "tests");
                !is_test && text.contains(&format!("\"{name}\""))
            })
            .map(|(file, _)| file)
            .collect();
        assert_eq!(with_name, [root().join("crates/checkpoint/src/commit.rs")], "`{name}`");
    }
}
