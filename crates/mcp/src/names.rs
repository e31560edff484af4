//! The names of a server's tools for models.

use std::collections::BTreeSet;

/// The maximum length of a name that providers accept.
const LONGEST: usize = 64;

/// Returns a unique name `server_tool` for each tool, with the characters and the length that providers
/// accept.
pub(crate) fn names<'a>(server: &str, tools: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut name = |tool: &str| {
        let plain: String = format!("{server}_{tool}").chars().map(plain).collect();
        let ends = (1..).map(|n| if n == 1 { String::new() } else { format!("_{n}") });
        let mut candidates = ends.map(|end| {
            let room = LONGEST - end.len();
            format!("{}{end}", &plain[..plain.len().min(room)])
        });
        let free = candidates.find(|name| !taken.contains(name)).expect("there are more numbers than names");
        taken.insert(free.clone());
        free
    };
    tools.map(&mut name).collect()
}

fn plain(char: char) -> char {
    if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_server_and_the_tool() {
        assert_eq!(names("fs", ["read", "a.b/c"].into_iter()), ["fs_read", "fs_a_b_c"]);
        assert_eq!(names("fs", ["a.b", "a_b", "a/b"].into_iter()), ["fs_a_b", "fs_a_b_2", "fs_a_b_3"]);
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let long = "é".repeat(100);
        let cut = names("x", [&*long, &*long].into_iter());
        assert_eq!(cut[0], format!("x_{}", "_".repeat(62)));
        assert_eq!(cut[1], format!("x_{}_2", "_".repeat(60)));
    }
}
