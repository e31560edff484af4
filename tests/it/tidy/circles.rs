//! Files that import each other: only a module and its own children may. Imports of names that the root of a crate exports are not
//! followed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{imports, inline, root, sources};

type Module = Vec<String>;

/// The modules of a crate, each with the paths that its code names.
struct Modules(BTreeMap<Module, Vec<Module>>);

impl Modules {
    fn of(krate: &str) -> Self {
        let src = format!("crates/{krate}/src");
        let mut modules: BTreeMap<Module, Vec<Module>> = BTreeMap::new();
        for (file, text) in sources(&src) {
            let module = module_of(file.strip_prefix(root().join(&src)).expect("it is inside"));
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let used = ["crate", "self", "super"].iter().flat_map(|begin| {
                let paths = imports(code, &format!("use {begin}::")).into_iter();
                paths.map(|path| [vec![(*begin).to_owned()], path].concat())
            });
            let inline = inline(code).into_iter().map(|path| [vec!["crate".to_owned()], path].concat());
            modules.entry(module).or_default().extend(used.chain(inline));
        }
        Self(modules)
    }

    /// Returns the module of the file that a path leads to.
    fn target(&self, from: &Module, path: &Module) -> Option<Module> {
        let mut at = if path[0] == "crate" { Vec::new() } else { from.clone() };
        for name in path {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                name => at.push(name.to_owned()),
            }
        }
        while !self.0.contains_key(&at) {
            at.pop()?;
        }
        Some(at)
    }

    /// Returns the modules that each module uses, directly or not.
    fn reachable(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let direct: BTreeMap<_, BTreeSet<_>> = (self.0.iter())
            .map(|(from, paths)| {
                let targets = paths.iter().filter_map(|path| self.target(from, path));
                // The root only exports.
                (from, targets.filter(|target| target != from && !target.is_empty()).collect())
            })
            .collect();
        let mut all = BTreeMap::new();
        for from in self.0.keys() {
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
fn module_of(file: &Path) -> Module {
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
            found.push(format!("{krate}: {}", names.join(", ")));
        }
    }
    assert!(found.is_empty(), "files import each other in a circle: {found:#?}");
}

#[test]
fn a_circle_is_found_through_a_third_module() {
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Vec<_>>();
    let uses = |from: &str, path: &str| (module(from), vec![module(path)]);
    let modules = Modules(BTreeMap::from([
        uses("a", "crate::b::Item"),
        uses("b", "super::c::Item"),
        uses("c", "crate::a::Item"),
        uses("d", "self::e::Item"),
        uses("d::e", "super::Item"),
    ]));
    assert_eq!(modules.circles(), [["a", "b", "c"].map(module)]);
}
