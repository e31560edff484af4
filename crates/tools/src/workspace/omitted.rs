//! The list of omissions at the end of a tool's result.

use crate::call::grouped;

/// Number of names shown of each kind.
const SHOWN: usize = 3;

/// Names of which the first ones are shown.
#[derive(Debug, Default)]
pub(crate) struct Names {
    count: u64,
    first: Vec<String>,
}

impl Names {
    pub(crate) fn push(&mut self, name: impl Into<String>) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(name.into());
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Describes them, as in `2 binary files (a.png, b.png)`; `None` if there are none.
    pub(crate) fn described(&self, one: &str, several: &str) -> Option<String> {
        let what = match self.count {
            0 => return None,
            1 => format!("1 {one}"),
            count => format!("{} {several}", grouped(count)),
        };
        let rest = if self.count > SHOWN as u64 { ", …" } else { "" };
        Some(format!("{what} ({}{rest})", self.first.join(", ")))
    }
}

/// Returns the last line of a result that leaves these out; `None` if it leaves out nothing.
pub(crate) fn note(not: &str, omitted: impl IntoIterator<Item = Option<String>>) -> Option<String> {
    let omitted: Vec<String> = omitted.into_iter().flatten().collect();
    (!omitted.is_empty()).then(|| format!("[not {not}: {}]", omitted.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_named_briefly() {
        let mut names = Names::default();
        let described = |names: &Names| names.described("file", "files");
        assert_eq!(note("read", [described(&names)]), None);
        names.push("a");
        assert_eq!(note("read", [described(&names), None]).as_deref(), Some("[not read: 1 file (a)]"));
        ["b", "c", "d"].into_iter().for_each(|name| names.push(name));
        assert_eq!(described(&names).as_deref(), Some("4 files (a, b, c, …)"));
    }
}
