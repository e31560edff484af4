//! `superstep skills`: the skills of the folder and of the user.

use serde_json::json;
use superstep::{
    llm::instructions::{FileProblem, Skill},
    tools::{FoundFile, FoundFiles, FoundKind},
};
use superstep_session::{
    config::{
        defaults::Defaults,
        instructions::{self, TrustedFiles},
        location::Location,
        settings::{Given, StoredSettings},
    },
    error::SessionError,
    text::{brief, printable_line},
};

use crate::{
    args::shared::{AGENT, SkillsArgs},
    output::{
        exit::Exit,
        note::print_note,
        table::{formatted, lines, new_table, print},
    },
};

/// Maximum number of characters of a description in a table.
const MAX_SHOWN: usize = 80;

/// Lists the skills, also those that the user has not confirmed.
pub(crate) fn skills(SkillsArgs { json, cwd }: SkillsArgs) -> Result<Exit, SessionError> {
    let location = Location::new(AGENT, None, cwd)?;
    let defaults = Defaults::load(&location.cwd)?;
    let configuration =
        Given::default().configuration(&StoredSettings::default(), &defaults, "the folder has")?;
    let found = match instructions::reason_off(&configuration) {
        None => instructions::reader(&location.cwd, &TrustedFiles::default())?.found(),
        Some(reason) => {
            print_note(&reason);
            FoundFiles::default()
        }
    };
    let skills: Vec<(&FoundFile, &Skill)> = found
        .files
        .iter()
        .filter_map(|file| if let FoundKind::Skill(skill) = &file.kind { Some((file, skill)) } else { None })
        .collect();
    for FileProblem { path, problem } in &found.problems {
        print_note(&format!("{} {problem}", printable_line(path)));
    }
    if json {
        return print(&lines(skills.iter().map(|(file, skill)| {
            json!({
                "skill": skill.name,
                "about": skill.description,
                "path": skill.path,
                "bytes": file.bytes,
                "hash": skill.hash,
                "used": file.is_confirmed,
                "license": skill.license,
                "compatibility": skill.compatibility,
                "allowed_tools": skill.allowed_tools,
            })
        })));
    }
    let mut table = new_table(&["SKILL", "USED", "TOOLS", "PATH", "WHAT IT IS FOR"]);
    for (file, skill) in skills {
        table.add_row([
            skill.name.clone(),
            if file.is_confirmed { "yes" } else { "not confirmed" }.to_owned(),
            printable_line(&skill.allowed_tools.join(" ")),
            printable_line(&skill.path),
            brief(&skill.description, MAX_SHOWN),
        ]);
    }
    print(&formatted(table))
}
