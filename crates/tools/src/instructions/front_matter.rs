//! The front matter of a `SKILL.md`: YAML without aliases, anchors and tags.

use saphyr_parser::{Event, Parser};
use superstep_llm::instructions::Skill;

/// Maximum size of a front matter in bytes.
const MAX_BYTES: usize = 16 << 10;

/// Maximum depth of lists and tables.
const MAX_DEPTH: usize = 8;

/// Maximum number of keys of a table.
const MAX_KEYS: usize = 100;

const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1_024;
const MAX_COMPATIBILITY: usize = 500;

/// A value of YAML. Scalars are texts, as they are written.
#[derive(Debug, PartialEq)]
enum Yaml {
    Text(String),
    List(Vec<Yaml>),
    Table(Vec<(String, Yaml)>),
}

/// A list or a table that is not complete.
enum Open {
    List(Vec<Yaml>),
    Table { entries: Vec<(String, Yaml)>, key: Option<String> },
}

/// Splits the text of a `SKILL.md` into its front matter and the rest; `None` without a front matter.
pub(super) fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let rest =
        text.strip_prefix("---").and_then(|rest| rest.trim_start_matches([' ', '\r']).strip_prefix('\n'))?;
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&rest[..at], &rest[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

/// Reads the front matter of the skill in the folder `folder`, and returns warnings about it.
///
/// # Errors
/// The skill cannot be used, as the end of a sentence that begins with its path.
pub(super) fn skill(yaml: &str, folder: &str) -> Result<(Skill, Vec<String>), String> {
    let Yaml::Table(entries) = parse(yaml)? else {
        return Err("has a front matter that is not a table".to_owned());
    };
    let (mut skill, mut warnings) = (Skill::default(), Vec::new());
    for (key, value) in entries {
        match (key.as_str(), value) {
            ("name", Yaml::Text(text)) => skill.name = text,
            ("description", Yaml::Text(text)) => skill.description = text.trim().to_owned(),
            ("license", Yaml::Text(text)) => skill.license = text,
            ("compatibility", Yaml::Text(text)) => skill.compatibility = text,
            ("allowed-tools", Yaml::Text(text)) => {
                skill.allowed_tools = text.split_whitespace().map(str::to_owned).collect();
            }
            ("allowed-tools", Yaml::List(tools))
                if tools.iter().all(|tool| matches!(tool, Yaml::Text(_))) =>
            {
                let text = |tool| if let Yaml::Text(text) = tool { Some(text) } else { None };
                skill.allowed_tools = tools.into_iter().filter_map(text).collect();
            }
            ("name" | "description" | "license" | "compatibility" | "allowed-tools", _) => {
                return Err(format!("has a front matter whose `{key}` is not a text"));
            }
            _ => {}
        }
    }
    if skill.description.is_empty() {
        return Err("has no `description`".to_owned());
    }
    if !is_name(&skill.name) {
        if !is_name(folder) {
            return Err("has no valid `name`: 1 to 64 of a-z, 0-9 and single `-` between them".to_owned());
        }
        warnings.push(format!("has no valid `name`, and gets that of its folder, `{folder}`"));
        folder.clone_into(&mut skill.name);
    } else if skill.name != folder {
        warnings.push(format!("has the `name` `{}`, and not that of its folder", skill.name));
    }
    for (field, text, most) in [
        ("description", &mut skill.description, MAX_DESCRIPTION),
        ("compatibility", &mut skill.compatibility, MAX_COMPATIBILITY),
    ] {
        if let Some((end, _)) = text.char_indices().nth(most) {
            text.truncate(end);
            warnings.push(format!("has a `{field}` of more than {most} characters, which is cut"));
        }
    }
    Ok((skill, warnings))
}

/// Returns whether it is the name of a skill.
pub(super) fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    name.len() <= MAX_NAME && name.split('-').all(is_part)
}

fn parse(yaml: &str) -> Result<Yaml, String> {
    if yaml.len() > MAX_BYTES {
        return Err("has a front matter of more than 16 KiB".to_owned());
    }
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(yaml) {
        let (event, _) =
            event.map_err(|error| format!("has a front matter that is not valid YAML: {error}"))?;
        let done = match event {
            Event::Alias(_) => return Err("has an alias in its front matter".to_owned()),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor > 0 =>
            {
                return Err("has an anchor in its front matter".to_owned());
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => return Err("has a tag in its front matter".to_owned()),
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() == MAX_DEPTH => {
                return Err(format!("has a front matter of more than {MAX_DEPTH} levels"));
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Table { entries: Vec::new(), key: None });
                continue;
            }
            Event::Scalar(text, ..) => Yaml::Text(text.into_owned()),
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(entries)) => Yaml::List(entries),
                Some(Open::Table { entries, .. }) => Yaml::Table(entries),
                None => continue,
            },
            _ => continue,
        };
        match open.last_mut() {
            None => return Ok(done),
            Some(Open::List(entries)) => entries.push(done),
            Some(Open::Table { entries, key }) => match (key.take(), done) {
                (Some(name), value) => entries.push((name, value)),
                (None, _) if entries.len() == MAX_KEYS => {
                    return Err(format!("has a table of more than {MAX_KEYS} keys in its front matter"));
                }
                (None, Yaml::Text(name)) if entries.iter().any(|(known, _)| *known == name) => {
                    return Err(format!("has `{name}` twice in its front matter"));
                }
                (None, Yaml::Text(name)) => *key = Some(name),
                (None, _) => return Err("has a key in its front matter that is not a text".to_owned()),
            },
        }
    }
    Err("has an empty front matter".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(yaml: &str) -> String {
        skill(yaml, "a").unwrap_err()
    }

    #[test]
    fn the_fields_of_a_skill_are_read() {
        let text = "---\nname: pdf-forms\ndescription: >\n  Fills forms.\n  Use it for PDF.\nlicense: MIT\nallowed-tools: read_file shell\n\
                    metadata:\n  version: 1\nother: [1, {a: b}]\n---\n# Forms\n---\n";
        let (yaml, body) = split(text).unwrap();
        assert_eq!(body, "# Forms\n---\n");
        let (read, warnings) = skill(yaml, "pdf-forms").unwrap();
        assert_eq!(
            (read.name.as_str(), read.description.as_str()),
            ("pdf-forms", "Fills forms. Use it for PDF.")
        );
        assert_eq!(
            (read.license.as_str(), read.allowed_tools),
            ("MIT", vec!["read_file".to_owned(), "shell".to_owned()])
        );
        assert!(warnings.is_empty(), "{warnings:?}");
        let (listed, warnings) = skill("name: a\ndescription: d\nallowed-tools: [x, y]", "b").unwrap();
        assert_eq!((listed.allowed_tools, warnings.len()), (vec!["x".to_owned(), "y".to_owned()], 1));
    }

    #[test]
    fn texts_without_a_front_matter_have_none() {
        for text in ["", "# a", "---", "---\nname: a\n", "--- a\n---\n", " ---\na: b\n---\n"] {
            assert_eq!(split(text), None, "{text:?}");
        }
        assert_eq!(split("\u{feff}---\r\na: b\r\n---\r\nc"), Some(("a: b\r\n", "c")));
    }

    #[test]
    fn aliases_tags_and_depth_are_rejected() {
        assert_eq!(refused("description: &a d\nname: *a"), "has an anchor in its front matter");
        assert!(refused("name: *a").contains("front matter"));
        assert_eq!(refused("description: !!str d"), "has a tag in its front matter");
        assert_eq!(refused("metadata: !x {}"), "has a tag in its front matter");
        assert_eq!(refused("a: [[[[[[[[[1]]]]]]]]]"), "has a front matter of more than 8 levels");
        assert_eq!(
            refused(&format!("a: {}", "x".repeat(MAX_BYTES))),
            "has a front matter of more than 16 KiB"
        );
        let keys: String = (0..=MAX_KEYS).map(|nth| format!("k{nth}: v\n")).collect();
        assert_eq!(refused(&keys), "has a table of more than 100 keys in its front matter");
        assert_eq!(refused("description: a\ndescription: b"), "has `description` twice in its front matter");
        assert_eq!(refused("- a"), "has a front matter that is not a table");
        assert_eq!(refused(""), "has an empty front matter");
        assert_eq!(refused("name: a"), "has no `description`");
        assert_eq!(refused("description: [a]"), "has a front matter whose `description` is not a text");
        assert!(
            refused("a: 'b").starts_with("has a front matter that is not valid YAML: "),
            "{}",
            refused("a: 'b")
        );
    }

    #[test]
    fn names_are_lower_case_words() {
        for name in ["a", "a-b", "0", "pdf-2", &"x".repeat(64)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-", "a-", "-a", "a--b", "A", "a_b", "a/b", "..", "é", &"x".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
        let (read, warnings) = skill("name: ../a\ndescription: d", "good").unwrap();
        assert_eq!((read.name.as_str(), warnings.len()), ("good", 1));
        assert!(skill("description: d", "Bad Folder").is_err());
        let long = format!("description: {}\ncompatibility: {}\nname: a", "d".repeat(2_000), "c".repeat(600));
        let (read, warnings) = skill(&long, "a").unwrap();
        assert_eq!((read.description.len(), read.compatibility.len(), warnings.len()), (1_024, 500, 2));
    }
}
