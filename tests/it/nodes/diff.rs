//! The difference of states as text.

use std::collections::BTreeMap;

use super::*;
use superstep::state::reduce;
use superstep_testing::state_diff;

#[derive(State, Clone, Debug, Default)]
struct Notes {
    list: Vec<String>,
    nested: BTreeMap<String, Vec<u32>>,
    text: Option<String>,
    #[channel(untracked)]
    hidden: u32,
}

fn list(entries: &[&str]) -> Notes {
    Notes { list: entries.iter().map(|entry| (*entry).to_owned()).collect(), ..Notes::default() }
}

#[test]
fn equal_states_differ_in_nothing() {
    assert_eq!(state_diff(&list(&["a"]), &list(&["a"])), "");
    assert_eq!(state_diff(&Notes::default(), &Notes { hidden: 1, ..Notes::default() }), "");
}

#[test]
fn lists_differ_by_entries() {
    assert_eq!(state_diff(&list(&["a"]), &list(&["a", "b", "c"])), "list + \"b\"\nlist + \"c\"\n");
    assert_eq!(state_diff(&list(&["a", "b", "c"]), &list(&["a", "x", "c"])), "list[1] \"b\" → \"x\"\n");
    assert_eq!(state_diff(&list(&["a", "b", "c"]), &list(&["a", "c"])), "list[1] - \"b\"\n");
    assert_eq!(state_diff(&list(&["a", "a"]), &list(&["a"])), "list[1] - \"a\"\n");
    assert_eq!(state_diff(&list(&["b"]), &list(&["a", "b"])), "list[0] + \"a\"\n");
    assert_eq!(state_diff(&list(&["a"]), &list(&[])), "list[0] - \"a\"\n");
}

#[test]
fn maps_differ_by_keys_and_values_by_both_sides() {
    let one =
        Notes { nested: BTreeMap::from([("a".to_owned(), vec![1]), ("b".to_owned(), vec![])]), ..list(&[]) };
    let other =
        Notes { nested: BTreeMap::from([("a".to_owned(), vec![2]), ("c".to_owned(), vec![3])]), ..list(&[]) };
    assert_eq!(state_diff(&one, &other), "nested.a[0] 1 → 2\nnested.b - []\nnested.c + [3]\n");
    let written = reduce(&one, [Notes::update().text("x".to_owned())]).unwrap();
    assert_eq!(state_diff(&one, &written), "text null → \"x\"\n");
}
