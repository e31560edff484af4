//! Each crate can be published: its tarball has all that it needs, and its manifest all that a registry shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

use super::{metadata, root, sources};

#[test]
fn every_crate_has_its_licences_and_states_what_a_registry_shows() {
    for package in metadata().workspace_packages() {
        let folder = package.manifest_path.parent().expect("a manifest is in a folder").as_std_path();
        for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let text = folder.join(file).canonicalize().ok();
            assert_eq!(text, root().join(file).canonicalize().ok(), "`{}` has {file}", package.name);
        }
        let documentation = format!("https://docs.rs/{}", package.name);
        assert_eq!(package.documentation.as_deref(), Some(&documentation[..]));
        let readme = package.readme().and_then(|readme| readme.canonicalize().ok());
        assert_eq!(readme, root().join("README.md").canonicalize().ok(), "{}", package.name);
        assert!(package.description.is_some() && package.license.is_some(), "{}", package.name);
    }
}

#[test]
fn every_included_file_is_in_the_tarball_of_its_crate() {
    let mut checked = 0;
    for package in metadata().workspace_packages() {
        let folder = package.manifest_path.parent().expect("a manifest is in a folder").as_std_path();
        let name =
            folder.strip_prefix(root()).expect("a crate is below the root").to_string_lossy().into_owned();
        for (file, text) in sources(&name) {
            for (at, begin) in text.match_indices("include_str!(\"") {
                let rest = &text[at + begin.len()..];
                let included = file.with_file_name(&rest[..rest.find('"').expect("a text ends")]);
                let inside = normal(&included);
                assert!(
                    inside.starts_with(folder),
                    "{} includes {rest:.40} of another crate",
                    file.display()
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 10, "the files are found: {checked}");
}

/// `cargo test` would otherwise build tokio, and all that uses it, once more than `cargo build`.
#[test]
fn a_program_with_the_manifest_of_the_guide_and_its_tests_have_each_crate_with_the_same_features() {
    let page = fs::read_to_string(root().join("docs/testing.md")).unwrap();
    let manifest = page.split("```").find_map(|block| block.strip_prefix("toml\n")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/main.rs"), "fn main() {}").unwrap();
    fs::copy(root().join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    for features in ["", ", features = [\"openai\"]"] {
        let crates = format!("\"{}/crates/", root().display());
        let own = manifest.replace("\"../superstep/crates/", &crates);
        let own = own.replace("crates/superstep\" }", &format!("crates/superstep\"{features} }}"));
        let own = format!("[package]\nname = \"shop\"\nedition = \"2024\"\n\n{own}\n[workspace]\n");
        fs::write(folder.path().join("Cargo.toml"), own).unwrap();
        let built = crates_of(folder.path(), "no-dev,features");
        let tested = crates_of(folder.path(), "features");
        assert!(built.len() > 50 && tested.len() > built.len(), "{built:?}");
        let differ: Vec<_> = built.iter().filter(|(name, of)| tested.get(*name) != Some(of)).collect();
        assert!(differ.is_empty(), "with{features}: {differ:?}");
    }
}

/// Returns the crates of a project with their features.
fn crates_of(folder: &Path, edges: &str) -> BTreeMap<String, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["tree", "--offline", "--prefix", "none", "--format", "{p}|{f}", "--edges", edges];
    let ran = Command::new(cargo).args(args).current_dir(folder).output().unwrap();
    let (text, error) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{error}");
    let crates = text.lines().filter_map(|line| line.trim_end_matches(" (*)").split_once('|'));
    crates.map(|(name, features)| (name.to_owned(), features.to_owned())).collect()
}

/// The compiler's `-Z direct-minimal-versions` would choose these, so that every build tests them.
#[test]
fn the_versions_of_the_lock_file_are_the_oldest_that_the_manifests_allow() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let locked: BTreeSet<_> = (lock.split("[[package]]").skip(1))
        .map(|package| {
            let value =
                |key: &str| package.lines().find_map(|line| line.strip_prefix(key)?.strip_suffix('"'));
            (
                value("name = \"").unwrap(),
                value("version = \"").unwrap().split('+').next().unwrap().to_owned(),
            )
        })
        .collect();
    let mut newer = BTreeSet::new();
    for package in metadata().workspace_packages() {
        for dependency in package.dependencies.iter().filter(|it| it.path.is_none()) {
            let oldest = dependency.req.comparators.first().expect("a version is stated");
            let [minor, patch] = [oldest.minor, oldest.patch].map(Option::unwrap_or_default);
            let oldest = format!("{}.{minor}.{patch}", oldest.major);
            if !locked.contains(&(dependency.name.as_str(), oldest.clone())) {
                newer.insert(format!("{} {oldest}", dependency.name));
            }
        }
    }
    assert!(
        newer.is_empty(),
        "the lock file has other versions than {newer:#?}; state those in the manifests"
    );
}

/// Returns the path without `..`, as the compiler of a tarball finds it: links are files there.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}
