//! Types whose methods stand in files that the type's own file does not know of: calls go down from there, and imports up, which no
//! test of imports can see.

use std::collections::BTreeMap;

use super::{circles::module_of, root, sources, without_tests};

/// The types whose methods are an API, in a file for each subject.
const APIS: [(&str, &str); 5] = [
    ("engine", "Topology"),
    ("graph", "CompiledGraph"),
    ("graph", "Cx"),
    ("graph", "StateGraph"),
    ("graph", "Thread"),
];

/// Types whose methods are to be moved. No type may be added.
const LEFT: [(&str, &str); 27] = [
    ("agent", "Agent"),
    ("agent", "AgentThread"),
    ("agent", "ConfigError"),
    ("agent", "ReactConfig"),
    ("agent", "Reply"),
    ("agent", "Handoff"),
    ("agent", "SubAgent"),
    ("checkpoint", "ThreadId"),
    ("cli", "DecisionArgs"),
    ("cli", "Location"),
    ("cli", "Setup"),
    ("llm", "Message"),
    ("llm", "ModelError"),
    ("llm", "ModelErrorKind"),
    ("llm", "Piece"),
    ("macros", "Input"),
    ("mcp", "CallListeners"),
    ("memory", "Mem0Form"),
    ("postgres", "Items"),
    ("postgres", "PostgresOptions"),
    ("postgres", "Reader"),
    ("sqlite", "Database"),
    ("sqlite", "Items"),
    ("state", "JsonChannel"),
    ("testing", "Sim"),
    ("worker", "Jobs"),
    ("worker", "Worker"),
];

/// Returns the name of the type of an inherent `impl`, from the text between `impl` and `{`; `None` for that of a trait.
fn implemented(header: &str) -> Option<&str> {
    let mut rest = header;
    if header.starts_with('<') {
        let mut depth = 0;
        let end = header.char_indices().find(|(at, sign)| {
            match sign {
                '<' => depth += 1,
                '>' if !header[..*at].ends_with('-') => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        rest = &header[end?.0 + 1..];
    }
    if rest.replace("for<", "").split_whitespace().any(|word| word == "for") {
        return None;
    }
    rest.trim().split(['<', ' ', '\n']).next()?.rsplit("::").next()
}

/// Returns the name of the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let item = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => line,
    };
    let item = ["struct ", "enum ", "union "].iter().find_map(|word| item.trim_start().strip_prefix(word))?;
    item.split(|sign: char| !sign.is_alphanumeric() && sign != '_').next()
}

#[test]
fn methods_stand_in_the_file_of_their_type_or_below() {
    let mut found = Vec::new();
    for krate in std::fs::read_dir(root().join("crates")).unwrap() {
        let krate = krate.unwrap().file_name().into_string().unwrap();
        let src = format!("crates/{krate}/src");
        let mut types: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
        let mut impls = Vec::new();
        for (file, text) in sources(&src) {
            let module = module_of(file.strip_prefix(root().join(&src)).expect("it is inside"));
            let code = without_tests(&text);
            for name in code.lines().filter_map(defined) {
                types.entry(name.to_owned()).or_default().push(module.clone());
            }
            for block in code.split("\nimpl").skip(1) {
                let header = block.split('{').next().unwrap_or_default();
                if let Some(name) = implemented(header.trim_start()) {
                    impls.push((name.to_owned(), module.clone()));
                }
            }
        }
        for (name, module) in impls {
            let entry = (krate.as_str(), name.as_str());
            let is_below = |own: &Vec<Vec<String>>| own.iter().any(|own| module.starts_with(own));
            if types.get(&name).is_some_and(|own| !is_below(own))
                && !APIS.contains(&entry)
                && !LEFT.contains(&entry)
            {
                found.push(format!("{krate}: `{name}` in `{}`", module.join("::")));
            }
        }
    }
    found.sort();
    assert!(
        found.is_empty(),
        "write functions that take the value, or move the methods below their type: {found:#?}"
    );
}

#[test]
fn the_type_of_an_impl_is_found() {
    assert_eq!(implemented("<S: State> run::Driver<S> "), Some("Driver"));
    assert_eq!(implemented("<F: Fn(u8) -> u8> Thread<F>\nwhere\n    F: Send,\n"), Some("Thread"));
    assert_eq!(implemented("Topology "), Some("Topology"));
    assert_eq!(implemented("<S: State> Drop for Driver<'_, S> "), None);
    assert_eq!(defined("    pub(in crate::run) struct Driver<S> {"), Some("Driver"));
    assert_eq!(defined("pub enum End {"), Some("End"));
    assert_eq!(defined("// A struct End is none."), None);
}
