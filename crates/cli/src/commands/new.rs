//! `superstep new`: a project with a graph, its tests and its program.

use std::{
    fs,
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use superstep::tools::internal::{UNFINISHED, clear_unfinished, lock_unfinished};
use superstep_session::{
    error::{ErrorKind, SessionError},
    text::quoted,
};

use crate::{
    args::new::NewArgs,
    output::{exit::Exit, note::print_note, table::print},
};

/// The files of a project, and their contents with placeholders.
const FILES: [(&str, &str); 8] = [
    ("Cargo.toml", include_str!("../../template/Cargo.toml.in")),
    ("README.md", include_str!("../../template/README.md")),
    (".gitignore", include_str!("../../template/gitignore")),
    (".github/workflows/ci.yml", include_str!("../../template/ci.yml")),
    ("src/main.rs", include_str!("../../template/src/main.rs")),
    ("src/expenses.rs", include_str!("../../template/src/expenses.rs")),
    ("src/tests.rs", include_str!("../../template/src/tests.rs")),
    ("threads/chairs.thread.jsonl", include_str!("../../template/threads/chairs.thread.jsonl")),
];

/// The crates that a project depends on, and their folders in a checkout.
const CRATES: [(&str, &str); 3] =
    [("superstep", "superstep"), ("superstep-cli", "cli"), ("superstep-testing", "testing")];

const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// The end of the manifest of a project below another workspace.
const WORKSPACE: &str =
    "\n# Apart from the workspace in a folder above, which does not list this package.\n[workspace]\n";

/// The steps of the CI that get the crates of a checkout, which is not where `Cargo.toml` names it.
const CHECKOUT: &str = "
      # The crates of superstep are in no registry yet. Set the variable SUPERSTEP_REPOSITORY of this repository (Settings,
      # Secrets and variables, Actions, Variables) to the `OWNER/NAME` of a repository with them.
      - if: vars.SUPERSTEP_REPOSITORY == ''
        run: echo '::error::set the variable SUPERSTEP_REPOSITORY to the OWNER/NAME of a repository of superstep'; exit 1
      - uses: actions/checkout@v4
        with:
          repository: ${{ vars.SUPERSTEP_REPOSITORY }}
          path: superstep
      - run: sed -i 's#path = \".*/crates/#path = \"superstep/crates/#' Cargo.toml";

/// Creates a project in a new folder.
pub(crate) fn new(args: NewArgs) -> Result<Exit, SessionError> {
    let NewArgs { name, path } = args;
    let folder = Path::new(&name);
    check_free(folder)?;
    let checkout = path.as_deref().map(checkout).transpose()?;
    let is_unpublished = checkout.is_none();
    let values = Values { name: &name, checkout, is_in_workspace: is_in_workspace() };
    create(folder, &values).map_err(|cause| {
        SessionError::new(
            ErrorKind::Failed,
            format!("cannot create the folder `{name}`: {cause}; nothing was created"),
        )
    })?;
    if is_unpublished {
        print_note(
            "the crates of superstep are in no registry yet, so `cargo test` needs a checkout of superstep: create the project \
             again with `--path DIR`, or name its folders in `Cargo.toml`",
        );
    }
    let input = quoted(r#"{"purpose": "chairs", "euros": 240}"#);
    print(&format!(
        "created the project `{name}`\n\n  \
         cd {name}\n  \
         cargo test\n  \
         cargo run -- run --input {input} --thread chairs\n  \
         cargo run -- answer chairs approve true\n  \
         cargo run -- history chairs\n\n\
         its README.md describes the next steps\n"
    ))
}

/// Rejects a folder with files, and any other entry of that name.
fn check_free(folder: &Path) -> Result<(), SessionError> {
    let name = folder.display();
    match fs::read_dir(folder).map(|mut entries| entries.next()) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => {
            Err(SessionError::usage(format!("the folder `{name}` exists and has files; choose another name")))
        }
        // A link that leads nowhere is an entry, too.
        Err(_) if folder.symlink_metadata().is_ok_and(|there| !there.is_dir()) => {
            Err(SessionError::usage(format!("`{name}` exists and is not a folder; choose another name")))
        }
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(SessionError::usage(format!("cannot create the folder `{name}`: {cause}"))),
    }
}

/// Returns the path of a checkout as the project writes it: a relative one is relative to the current folder, above the
/// project.
fn checkout(given: &Path) -> Result<String, SessionError> {
    let shown = given.display();
    for (_, folder) in CRATES {
        if !given.join("crates").join(folder).join("Cargo.toml").is_file() {
            let message =
                format!("`{shown}` is not a checkout of superstep: it has no `crates/{folder}/Cargo.toml`");
            return Err(SessionError::usage(message));
        }
    }
    // Cargo drops `x/..` without following the link that `x` may be.
    let normal = |pair: &[Component<'_>]| matches!(pair, [Component::Normal(_), Component::ParentDir]);
    let leads_back = given.components().collect::<Vec<_>>().windows(2).any(normal);
    let path: PathBuf = match given.canonicalize() {
        Ok(real) if leads_back => real,
        _ if given.is_absolute() => given.to_owned(),
        _ => Path::new("..").join(given).components().collect(),
    };
    let path = path.into_os_string().into_string().map_err(|_| {
        SessionError::usage(format!("the path `{shown}` is not valid UTF-8, which `Cargo.toml` requires"))
    })?;
    Ok(if cfg!(windows) { path.replace('\\', "/") } else { path })
}

/// Returns whether the current folder is inside of a workspace of cargo, which would reject a package that it does not list.
fn is_in_workspace() -> bool {
    let Ok(current) = std::env::current_dir() else { return false };
    current.ancestors().any(|folder| {
        let manifest = manifest(&folder.join("Cargo.toml")).and_then(|text| text.parse::<toml::Table>().ok());
        manifest.is_some_and(|manifest| manifest.contains_key("workspace"))
    })
}

/// Reads a manifest. A pipe or a device of this name would never end.
fn manifest(path: &Path) -> Option<String> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_MANIFEST_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

struct Values<'a> {
    name: &'a str,
    checkout: Option<String>,
    is_in_workspace: bool,
}

impl Values<'_> {
    /// Replaces the placeholders of a file.
    fn fill(&self, file: &str) -> String {
        let mut text = file
            .replace("{{name}}", self.name)
            .replace("{{rust-version}}", env!("CARGO_PKG_RUST_VERSION"))
            .replace(
                "{{ci-note}}",
                match self.checkout {
                    Some(_) => {
                        " Set the variable `SUPERSTEP_REPOSITORY` of the repository there, as the file says."
                    }
                    None => "",
                },
            )
            .replace("{{checkout}}", if self.checkout.is_some() { CHECKOUT } else { "" })
            .replace("{{workspace}}", if self.is_in_workspace { WORKSPACE } else { "" });
        for (name, folder) in CRATES {
            text = text.replace(&format!("{{{{{name}}}}}"), &self.dependency(folder));
        }
        text
    }

    /// Formats the dependency on the crate in this folder of a checkout.
    fn dependency(&self, folder: &str) -> String {
        match &self.checkout {
            Some(checkout) => {
                let path = toml::Value::String(format!("{}/crates/{folder}", checkout.trim_end_matches('/')));
                format!("{{ path = {path} }}")
            }
            None => toml::Value::from(env!("CARGO_PKG_VERSION")).to_string(),
        }
    }
}

/// Creates the folder with all files, or nothing: the files are written beside it, and it is renamed at the end.
fn create(folder: &Path, values: &Values<'_>) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    // What a killed process has left.
    clear_unfinished(Path::new("."));
    builder.prefix(UNFINISHED);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o777));
    }
    let beside = builder.tempdir_in(".")?;
    let _lock = lock_unfinished(beside.path());
    for (name, content) in FILES {
        let path = beside.path().join(name);
        fs::create_dir_all(path.parent().expect("a file is in a folder"))?;
        fs::write(path, values.fill(content))?;
    }
    if folder.exists() {
        // It is empty, and not every platform renames over a folder.
        fs::remove_dir(folder)?;
    }
    fs::rename(beside.path(), folder)?;
    // It has moved.
    let _ = beside.keep();
    Ok(())
}
