//! Reading the program's own files, which may have come with the folder from another person.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    path::Path,
};

/// Opens a regular file for reading.
///
/// # Errors
/// An error of the file system; or it is a link, a pipe, a device or a folder.
pub fn open_stored(path: &Path) -> io::Result<File> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(not_a_file(path));
    }
    let file = not_elsewhere(OpenOptions::new().read(true)).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_file(path)) }
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// See [`open_stored`]; or it is longer.
pub fn read_stored(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open_stored(path)?.take(most.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        Err(io::Error::other(format!("`{}` is longer than {most} bytes; delete it", name(path))))
    } else {
        Ok(content)
    }
}

/// Sets that nothing is opened through a link, and that no pipe is waited for, even if the file was replaced after a check.
pub(super) fn not_elsewhere(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        std::os::unix::fs::OpenOptionsExt::custom_flags(options, flags.bits().cast_signed());
    }
    options
}

pub(super) fn not_a_file(path: &Path) -> io::Error {
    io::Error::other(format!("`{}` is not a regular file; remove it", name(path)))
}

fn name(path: &Path) -> impl std::fmt::Display {
    path.file_name().unwrap_or_default().display()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_up_to_a_length_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "1234").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink("/dev/zero", at("endless")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let read = |name: &str, most| read_stored(&at(name), most).map_err(|error| error.to_string());
        assert_eq!(read("file", 4).unwrap(), b"1234");
        assert_eq!(read("file", 3).unwrap_err(), "`file` is longer than 3 bytes; delete it");
        for other in ["link", "endless", "pipe"] {
            assert_eq!(read(other, 4).unwrap_err(), format!("`{other}` is not a regular file; remove it"));
        }
        assert_eq!(read_stored(&at("missing"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
