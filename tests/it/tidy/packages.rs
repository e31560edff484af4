//! Each crate can be published: its tarball has all that it needs, and its manifest all that a registry shows.

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
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
