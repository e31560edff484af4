//! Files that import each other: only a module and its own children may. A name that a module exports belongs to the file that
//! defines it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{imports, inline, root, sources, without_tests};

type Module = Vec<String>;

/// The circles that are allowed, each by its crate and one of its modules.
///
/// A `Namespace` is made by functions that fail with a `StoreError`, of which a variant has the namespace of an item.
const ALLOWED: [(&str, &str); 1] = [("checkpoint", "store::namespace")];

/// The modules of a crate.
#[derive(Default)]
struct Modules {
    /// The paths that the code of each module names.
    uses: BTreeMap<Module, Vec<Module>>,
    /// The names that each module exports from others, with their paths.
    exports: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl Modules {
    fn of(krate: &str) -> Self {
        let src = format!("crates/{krate}/src");
        let mut modules = Self::default();
        for (file, text) in sources(&src) {
            let module = module_of(file.strip_prefix(root().join(&src)).expect("it is inside"));
            let code = without_tests(&text);
            let used = ["crate", "self", "super"].iter().flat_map(|begin| {
                let paths = imports(&code, &format!("use {begin}::")).into_iter();
                paths.map(|path| [vec![(*begin).to_owned()], path].concat())
            });
            let inline = inline(&code).into_iter().map(|path| [vec!["crate".to_owned()], path].concat());
            modules.uses.entry(module.clone()).or_default().extend(used.chain(inline));
            modules.export(&module, &code);
        }
        modules
    }

    /// Adds what a file exports, also from modules that only group names.
    fn export(&mut self, module: &Module, code: &str) {
        let mut rest = String::new();
        let mut groups: Vec<(Module, String)> = Vec::new();
        let mut is_inside = false;
        for line in code.lines() {
            if let Some(group) = line.strip_prefix("pub mod ").and_then(|line| line.strip_suffix(" {")) {
                groups.push(([module.clone(), vec![group.to_owned()]].concat(), String::new()));
                is_inside = true;
            }
            let text =
                if is_inside { &mut groups.last_mut().expect("a group has begun").1 } else { &mut rest };
            text.push_str(line);
            text.push('\n');
            is_inside &= line != "}";
        }
        groups.push((module.clone(), rest));
        for (group, code) in groups {
            for begin in ["pub use ", "pub(crate) use ", "pub(super) use "] {
                for path in imports(&code, begin) {
                    // A path without one of these begins with a child, or with another crate.
                    let is_child = !["crate", "self", "super"].contains(&path[0].as_str());
                    let path = if is_child { [vec!["self".to_owned()], path].concat() } else { path };
                    let name = path.last().expect("a path is not empty").clone();
                    self.exports.entry(group.clone()).or_default().insert(name, path);
                }
            }
        }
    }

    /// Returns the module of the file that a path leads to.
    fn target(&self, from: &Module, path: &Module) -> Option<Module> {
        let mut at = self.walk(from, path, 0);
        while !self.uses.contains_key(&at) {
            at.pop()?;
        }
        Some(at)
    }

    fn walk(&self, from: &Module, path: &Module, depth: usize) -> Module {
        let mut at = if path[0] == "crate" { Vec::new() } else { from.clone() };
        for name in path {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                name => {
                    let child = [at.clone(), vec![name.to_owned()]].concat();
                    let exported = self.exports.get(&at).and_then(|names| names.get(name));
                    at = match exported.filter(|_| !self.uses.contains_key(&child) && depth < 8) {
                        Some(path) => self.walk(&at, path, depth + 1),
                        None => child,
                    };
                }
            }
        }
        at
    }

    /// Returns the modules that each module uses, directly or not.
    fn reachable(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let direct: BTreeMap<_, BTreeSet<_>> = (self.uses.iter())
            .map(|(from, paths)| {
                let targets = paths.iter().filter_map(|path| self.target(from, path));
                // The root only exports.
                (from, targets.filter(|target| target != from && !target.is_empty()).collect())
            })
            .collect();
        let mut all = BTreeMap::new();
        for from in self.uses.keys() {
            let (mut seen, mut left) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(next) = left.pop() {
                left.extend(direct[&next].iter().filter(|target| seen.insert((*target).clone())).cloned());
            }
            all.insert(from, seen);
        }
        all
    }

    /// Returns the circles that are wider than a module and its children.
    fn circles(&self) -> Vec<Vec<Module>> {
        let reachable = self.reachable();
        let mut circles: Vec<Vec<Module>> = Vec::new();
        for (from, targets) in &reachable {
            let is_first = circles.iter().all(|circle| !circle.contains(from));
            if is_first && !from.is_empty() && targets.contains(*from) {
                let back = targets.iter().filter(|target| reachable[target].contains(*from)).cloned();
                circles.push(back.collect());
            }
        }
        circles.retain(|circle| {
            let parent = circle.iter().min_by_key(|module| module.len()).expect("a circle is not empty");
            !circle.iter().all(|module| module.starts_with(parent))
        });
        circles
    }
}

/// Returns the module of a file below `src`.
pub(super) fn module_of(file: &Path) -> Module {
    let mut names: Module =
        file.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|name| matches!(name.as_str(), "lib" | "main" | "mod")) {
        names.pop();
    }
    names
}

#[test]
fn no_circle_of_imports_is_wider_than_a_module_and_its_children() {
    let mut found = Vec::new();
    for krate in std::fs::read_dir(root().join("crates")).unwrap() {
        let krate = krate.unwrap().file_name().into_string().unwrap();
        for circle in Modules::of(&krate).circles() {
            let names: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
            if !ALLOWED.iter().any(|(of, module)| *of == krate && names.iter().any(|name| name == module)) {
                found.push(format!("{krate}: {}", names.join(", ")));
            }
        }
    }
    assert!(found.is_empty(), "files import each other in a circle: {found:#?}");
}

#[test]
fn a_circle_is_found_through_a_third_module() {
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Vec<_>>();
    let uses = |from: &str, path: &str| (module(from), vec![module(path)]);
    let uses = BTreeMap::from([
        uses("a", "crate::b::Item"),
        uses("b", "super::c::Item"),
        uses("c", "crate::a::Item"),
        uses("d", "self::e::Item"),
        uses("d::e", "super::Item"),
    ]);
    let modules = Modules { uses, ..Modules::default() };
    assert_eq!(modules.circles(), [["a", "b", "c"].map(module)]);
}

#[test]
fn a_circle_is_found_through_exported_names() {
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Vec<_>>();
    let mut modules = Modules::default();
    for (from, path) in [("a", "crate::B"), ("b", "crate::group::A")] {
        modules.uses.insert(module(from), vec![module(path)]);
    }
    modules.uses.insert(Vec::new(), Vec::new());
    modules.export(&Vec::new(), "pub use b::B;\npub mod group {\n    pub use crate::a::A;\n}\n");
    assert_eq!(modules.circles(), [["a", "b"].map(module)]);
}

#[test]
fn only_the_items_of_tests_are_left_out() {
    let code = "use a;\n#[cfg(test)]\nuse b::{\n    c,\n};\nfn d() {}\n#[cfg(test)]\nmod tests {\n    use e;\n}\nfn f() {}\n#[cfg(test)]\nmod g;\nmod h;\n";
    assert_eq!(without_tests(code), "use a;\nfn d() {}\nfn f() {}\nmod h;\n");
}
