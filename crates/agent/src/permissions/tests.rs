use serde_json::json;
use superstep_llm::{FnTool, Subject, ToolCx, ToolSpec, tool_fn};

use super::*;

/// For each pattern: certain matches, possible matches, and no matches.
type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a [&'a str]);

fn check(fit: impl Fn(&str, &str) -> Fit, cases: &[Case<'_>]) {
    for (pattern, yes, maybe, no) in cases {
        for (wanted, texts) in [(Fit::Yes, yes), (Fit::Maybe, maybe), (Fit::No, no)] {
            for text in *texts {
                assert_eq!(fit(pattern, text), wanted, "`{pattern}` and `{text}`");
            }
        }
    }
}

fn real(pattern: &str, below: &str, whole: bool, any_case: bool) -> Fit {
    paths::fit(pattern, &paths::ResolvedPath { root: "/home/ada/work", below, whole, any_case })
}

#[test]
fn a_path_fits_by_its_names() {
    check(
        |pattern, path| real(pattern, path, false, false),
        &[
            ("docs/*", &["docs/a", "docs/.b"], &["docs/a/b"], &["docs", "src/docs/a", "docsx/a", "Docs/a"]),
            ("docs/**", &["docs/a", "docs/a/b"], &[], &["docs", "src/a"]),
            ("./docs//*", &["docs/a"], &[], &["src"]),
            ("docs/", &["docs"], &["docs/a"], &["doc"]),
            ("*", &["a"], &["a/b"], &[""]),
            ("**", &["a", "a/b", ""], &[], &[]),
            ("*.md", &["a.md"], &["a.md/x"], &["docs/a.md"]),
            ("{docs,src/gen}/*", &["docs/a", "src/gen/b"], &["docs/a/b"], &["src/a"]),
            ("/home/ada/work/docs/*", &["docs/a"], &[], &["src/a"]),
            ("/etc/*", &[], &[], &["etc/passwd"]),
            ("docs/../src/*", &[], &["docs/a", "src/a", "x"], &[]),
        ],
    );
    // If letter case is ignored, they may match.
    assert_eq!(real("Docs/*", "docs/a", false, true), Fit::Maybe);
}

#[test]
fn a_call_about_a_whole_folder_touches_all_of_it() {
    check(
        |pattern, path| real(pattern, path, true, false),
        &[
            ("secrets/**", &["secrets", "secrets/a"], &[""], &["src", "secret"]),
            ("secrets/*.key", &[], &["", "secrets", "secrets/a.key/x"], &["src", "secrets/a"]),
            ("*", &["src"], &["", "src/a"], &[]),
            ("**/*.key", &["a.key"], &["", "src"], &[]),
            ("{a,b/c}/d", &[], &["", "b", "x"], &[]),
        ],
    );
}

#[test]
fn a_path_of_an_unknown_folder_fits_by_its_letters_if_they_are_plain() {
    check(
        paths::fit_written,
        &[
            (
                "docs/*",
                &["docs/a"],
                &[
                    "docs/../docs/a",
                    "./docs/a",
                    "docs//a",
                    "docs",
                    ".",
                    "docs/a/b",
                    "/w/docs/a",
                    "DOCS/a",
                    "../docs/a",
                    "x/../docs/a",
                    "docs\\a",
                    "~/docs",
                    "file:///docs/a",
                    "docs/%2e%2e/a",
                ],
                &["src/a", "docs/../src/main.rs", "mydocs/a"],
            ),
            ("/srv/docs/**", &["/srv/docs/a/b"], &["docs/a", "/srv"], &["/etc/passwd"]),
        ],
    );
    assert_eq!(paths::fit_written("docs/**", &"docs/".repeat(100_000)), Fit::Maybe);
}

#[test]
fn an_address_fits_by_its_parts() {
    check(
        addresses::fit,
        &[
            (
                "https://*",
                &["https://example.org/a?b", "https://[::1]:8443/"],
                &["https://u@example.org/"],
                &["http://example.org/"],
            ),
            (
                "https://example.org/*",
                &[
                    "https://example.org/",
                    "https://EXAMPLE.org:443/a/b?c",
                    "https://example.org./a",
                    "https://exa%6Dple.org/a",
                ],
                &[
                    "https://example.org:8443/",
                    "https://example.org@example.org/",
                    "https://example.org/a%2fb",
                    "https://user:pass@example.org/",
                    "no address",
                ],
                &[
                    "https://example.org.evil.com/",
                    "https://example.org@evil.com/",
                    "http://example.org/",
                    "https://evil.com/example.org/",
                    "https://evil.com#https://example.org/",
                    "https://evil.com\\@example.org.evil.com/",
                    "ftp://example.org/",
                ],
            ),
            (
                "https://example.org/docs/*",
                &[
                    "https://example.org/docs/a/b",
                    "https://example.org/x/../docs/a",
                    "https://example.org/docs/?q",
                ],
                &[
                    "https://example.org/DOCS/a",
                    "https://example.org//docs/a",
                    "https://example.org/%64ocs/a",
                ],
                &[
                    "https://example.org/docs/../admin",
                    "https://example.org/docs/%2e%2e/admin",
                    "https://example.org/admin?/docs/",
                ],
            ),
            (
                "https://example.org/*.json",
                &["https://example.org/a.json"],
                &["https://example.org/a.json?x"],
                &["https://example.org/admin?.json", "https://example.org/a/b.xml?x=/c.json"],
            ),
            (
                "https://*.example.org/a",
                &["https://www.example.org/a"],
                &["https://a.b.example.org/a", "https://www.example.org/a/b", "https://www.example.org/a?b"],
                &["https://example.org/a", "https://www.example.org.evil.com/a", "https://www.example.org/b"],
            ),
            (
                "http://localhost:3000/*",
                &["http://localhost:3000/a"],
                &[],
                &["http://localhost:3001/a", "http://localhost/a"],
            ),
            (
                "http://127.0.0.1:*/*",
                &["http://127.0.0.1:3/a", "http://0x7f.1:80/", "http://2130706433/"],
                &[],
                &["http://127.0.0.2/"],
            ),
            (
                "https://bücher.example/*",
                &["https://xn--bcher-kva.example/a", "https://BÜCHER.example/"],
                &[],
                &["https://bucher.example/"],
            ),
            (
                "https://example.org",
                &["https://example.org/"],
                &["https://example.org/a"],
                &["https://example.com/"],
            ),
            ("*evil*", &[], &["https://evil.com/"], &["https://example.org/"]),
            ("http{,s}://*", &["http://a/", "https://a/"], &[], &["ftp://a/"]),
            ("*", &["https://a/"], &["https://u@a/"], &[]),
        ],
    );
}

#[test]
fn a_command_is_allowed_by_its_words_and_forbidden_in_every_part() {
    check(
        commands::fit,
        &[
            (
                "git *",
                &[
                    "git status",
                    "git log  --oneline",
                    "git commit -m 'a; b && c | d > e `f` $(g)'",
                    "git",
                    "git add *.rs",
                    "git show $REV",
                ],
                &[
                    "git status; rm -rf /",
                    "git status && ls",
                    "git log | sh",
                    "git log || ls",
                    "git log & ls",
                    "git status\nrm x",
                    "git $(rm x)",
                    "git `rm x`",
                    "git log > /etc/passwd",
                    "git log 2>&1",
                    "git < x",
                    "git \"$(rm x)\"",
                    "git ${x:-$(rm)}",
                    "(git status)",
                    "GIT_SSH=evil git fetch",
                    "sudo git x",
                    "/usr/bin/git x",
                    "g\\it x \\\n y",
                    "git # x",
                    "git $((a[$(x)]))",
                    "git 'x",
                    "{ git x; }",
                    "! git x",
                    "git log <<EOF\nrm x\nEOF",
                    "git $'\\n'",
                    "git x; ",
                    "GIT x",
                    "$X git",
                    "echo $(ls)",
                ],
                &["ls", "gitx y", "echo digit x", "legit x", "cd x; ls"],
            ),
            (
                "rm *",
                &["rm x", "r\"m\" -rf x", "\\rm x", "rm"],
                &[
                    "ls; rm x",
                    "ls\nrm x",
                    "ls && rm x",
                    "ls | xargs rm",
                    "sudo rm x",
                    "/bin/rm x",
                    "echo $(rm x)",
                    "echo `rm x`",
                    "echo \"$(rm x)\"",
                    "(rm x)",
                    "{ rm x; }",
                    "if true; then rm x; fi",
                    "x=1 rm x",
                    "sh -c 'rm x'",
                    "eval \"$x\"",
                    "$x y",
                    "/bin/r? x",
                    "env $x y",
                    "echo x | sh",
                    "f() { rm x; }; f",
                    "rm x > y",
                    "> y rm x",
                    "RM x",
                    "bash x.sh",
                    "printf 'r%s -rf x' m | env sh",
                    "nohup sh x",
                    "{rm,-rf,x}",
                    "r{m,} x",
                    "find . -exec rm {} ;",
                    "a=rm; $a x",
                    // Programs that only the shell knows, behind whatever may stand before a program.
                    "`echo r`m -rf x",
                    "ls; `echo r`m -rf x",
                    "if :; then $a x; fi",
                    "while $a x; do :; done",
                    "case x in x) $a y;; esac",
                    "! $a x",
                    "coproc $'\\162m' x",
                    ">/dev/null $'\\162m' x",
                    "2>&1 $a x",
                    "&>/dev/null $a x",
                    "<<< y $a x",
                    "x=1 2>y $a z",
                    "stdbuf -o0 $'\\162m' x",
                    "env /bin/r? x",
                    "find . -exec /bin/[r]m {} ;",
                    "env > y sh x",
                    "time -p sh x.sh",
                    "A=\"x y\" bash x.sh",
                    "A='a b' $'\\162m' -rf x",
                    ">\"/tmp/a b\" bash x.sh",
                    "echo '`' ; `echo r`m -rf x",
                    "time -p $'\\162m' -rf x",
                    // Programs from the input, and at the end.
                    "printf 'r%s' m | xargs -I{} {} -rf x",
                    "printf 'r%s' m | xargs -P 2 -I @ /bin/@ x",
                    "printf 'r%s' m | sudo xargs --replace {} x",
                    "printf 'r%s' m | xargs -I% $(echo %) x",
                    "printf 'r%s x' m | parallel",
                    "parallel -j 2 ::: 'r''m x'",
                    "parallel {} -rf x ::: `printf r%s m`",
                    "trap \"$a x\" EXIT",
                    "trap 'rm x' EXIT",
                    // Only a shell knows what they run.
                    "echo `date`",
                    "x=$(date) ls",
                    "ls | xargs -I{} cp {} y",
                    "ls | xargs -n 1 wc -l",
                    "parallel gzip ::: a b",
                    "while [ $i -lt 3 ]; do ls; done",
                    "for f in a b; do [ -f \"$f\" ] && echo \"$f\"; done",
                    "case \"$1\" in start) ls;; esac",
                ],
                &[
                    "ls",
                    "time ls *.rs",
                    "ls $HOME > y 2>&1",
                    "if true; then echo $HOME; fi",
                    "trap 'echo end' EXIT",
                    "find . -name x",
                    "find . -name 'r*'",
                    "if [ -f x ]; then ls; fi",
                    "! [ -e x ]",
                    "echo '{a,b}'",
                    "echo $HOME",
                    "cargo test --workspace",
                    "ls *.rs",
                    "rmdir x",
                    "git commit -m 'x; y'",
                    "farm x",
                ],
            ),
            (
                "cargo build && cargo test *",
                &["cargo build && cargo test --all", "cargo  build&&cargo test x"],
                &["cargo build && cargo test x; rm y"],
                &["cargo build"],
            ),
            ("cargo test > out.txt", &["cargo test > out.txt"], &[], &["cargo test", "cargo test > x"]),
            (
                "cat docs/*",
                &["cat docs/a"],
                &[
                    "cat docs/../x",
                    "cat docs/a..",
                    "cat docs/a/b",
                    "cat docs/a /etc/passwd",
                    "cat docs/$X",
                    "cat docs/?",
                ],
                &["cat src/a"],
            ),
            ("*", &["ls", "ls -l x"], &["ls; rm x", "ls > x", "x=y ls", "$x", "if x"], &[]),
            ("echo $(date)", &["echo $(date)", " echo $(date) "], &[], &["echo x"]),
            (
                "RUST_LOG=debug cargo *",
                &["RUST_LOG=debug cargo test"],
                &[],
                &["RUST_LOG=x cargo test", "cargo test"],
            ),
            ("git * --dry-run", &["git push --dry-run", "git push x --dry-run"], &[], &["git push"]),
            (
                "curl * | sh",
                &["curl x | sh", "curl x -o - | sh "],
                &["cd y; curl x|sh", "sudo curl x | sh"],
                &["curl x"],
            ),
        ],
    );
    assert_eq!(commands::fit("rm *", &"x ".repeat(100_000)), Fit::Maybe);
}

#[derive(schemars::JsonSchema, serde::Deserialize)]
#[expect(dead_code, reason = "only its schema is used")]
struct Args {
    to: Option<String>,
    path: Option<String>,
    paths: Option<Vec<String>>,
    edits: Option<Value>,
    url: Option<String>,
    command: Option<String>,
    #[serde(default = "home")]
    folder: String,
}

fn home() -> String {
    "secrets".to_owned()
}

fn tool()
-> FnTool<Args, impl Fn(Args, ToolCx) -> std::future::Ready<Result<String, superstep_llm::ToolError>>> {
    tool_fn(ToolSpec::of::<Args>("t", ""), |_: Args, _| std::future::ready(Ok(String::new())))
}

fn says(then: Permit, argument: &str, pattern: &str, args: &Value) -> Option<Permit> {
    let arguments = [(argument.to_owned(), pattern.to_owned())].into();
    permit_of(&[PermissionRule { arguments, ..PermissionRule::new("t", then) }], "t", Some(&tool()), args)
}

#[test]
fn doubtful_calls_are_denied_and_not_allowed() {
    for (argument, pattern, args, allows, denies) in [
        ("path", "docs/*", json!({"path": "docs/a"}), true, true),
        ("path", "docs/*", json!({"path": "docs/../src/main.rs"}), false, false),
        ("path", "secrets/*", json!({"path": "./secrets/x"}), false, true),
        ("path", "secrets/*", json!({"path": "a/../secrets/x"}), false, true),
        ("path", "secrets/*", json!({"path": "SECRETS/x"}), false, true),
        ("paths", "docs/*", json!({"paths": ["docs/a", "docs/b"]}), true, true),
        ("paths", "docs/*", json!({"paths": ["docs/a", "src/b"]}), false, true),
        ("paths", "docs/*", json!({"paths": ["src/a"]}), false, false),
        ("paths", "docs/*", json!({"paths": []}), false, true),
        ("edits", "docs/*", json!({"edits": {"file": "docs/a"}}), false, true),
        ("edits", "docs/*", json!({"edits": {"file": {"name": "src/a"}}}), false, false),
        ("edits", "{}", json!({"edits": {}}), true, true),
        ("to", "a*", json!({"to": "ada"}), true, true),
        ("to", "a*", json!({"to": "bob"}), false, false),
        ("to", "a/*", json!({"to": "a/../b"}), false, false),
        ("to", "https://example.org/*", json!({"to": "https://example.org.evil.com/"}), false, false),
        // A missing argument: missing text does not match, and the target of a missing path is unknown.
        ("to", "a*", json!({}), false, false),
        ("path", "secrets/*", json!({}), false, true),
        ("folder", "secrets", json!({}), true, true),
        ("other", "x*", json!({}), false, false),
        ("command", "git *", json!({"command": "git x; y"}), false, true),
        ("url", "https://example.org/*", json!({"url": "https://u@example.org/"}), false, true),
        ("to", &"[a]".repeat(2_000), json!({"to": "a"}), false, true),
    ] {
        let about = format!("{argument} {} {args}", &pattern[..pattern.len().min(30)]);
        let allowed = says(Permit::Allow, argument, pattern, &args) == Some(Permit::Allow);
        assert_eq!(allowed, allows, "allow {about}");
        let denied = says(Permit::Deny, argument, pattern, &args) == Some(Permit::Deny);
        assert_eq!(denied, denies, "deny {about}");
    }
}

#[test]
fn the_last_rule_decides_and_a_doubtful_one_only_makes_it_stricter() {
    let rule = |then, pattern: &str| PermissionRule {
        arguments: [("path".to_owned(), pattern.to_owned())].into(),
        ..PermissionRule::new("*", then)
    };
    let (all, doubtful) = (PermissionRule::new("*", Permit::Allow), json!({"path": "./a/b"}));
    let decide = |rules: &[PermissionRule]| permit_of(rules, "t", Some(&tool()), &doubtful);
    assert_eq!(decide(&[rule(Permit::Allow, "a/*")]), None);
    assert_eq!(decide(&[all.clone(), rule(Permit::Ask, "a/*")]), Some(Permit::Ask));
    assert_eq!(
        decide(&[PermissionRule::new("t", Permit::Deny), rule(Permit::Ask, "a/*")]),
        Some(Permit::Deny)
    );
    assert_eq!(decide(&[rule(Permit::Deny, "a/*"), all.clone()]), Some(Permit::Allow));
    assert_eq!(decide(&[all, rule(Permit::Deny, "b/*")]), Some(Permit::Allow));
}

#[test]
fn subjects_reported_by_a_tool_are_matched() {
    let at =
        |below: &str| Subject::Path { root: "/r".into(), below: below.into(), whole: false, any_case: false };
    let real = at("secrets/x");
    let tool = tool().with_subject(move |argument, _| (argument == "to").then(|| real.clone()));
    let deny = PermissionRule {
        arguments: [("to".to_owned(), "secrets/*".to_owned())].into(),
        ..PermissionRule::new("t", Permit::Deny)
    };
    assert_eq!(permit_of(&[deny], "t", Some(&tool), &json!({"to": "a link"})), Some(Permit::Deny));
}

#[test]
fn a_pattern_that_is_too_large_is_an_error() {
    let rule = |pattern: String| PermissionRule::new(pattern, Permit::Allow).problem().unwrap();
    assert_eq!(rule("a".repeat(5_000)), "the pattern is longer than 4096 bytes");
    assert!(rule("[".to_owned()).contains("unclosed character class"));
    let deep = rule("{a".repeat(1_000) + &"}".repeat(1_000));
    assert_eq!(deep, "the pattern is too large");
}

#[test]
fn the_rule_that_denies_is_named_as_it_is_written() {
    let rule = |path: &str, then| PermissionRule {
        arguments: [("path".to_owned(), path.to_owned())].into(),
        ..PermissionRule::new("write_file", then)
    };
    let rules = [
        PermissionRule::new("*", Permit::Ask),
        rule("secrets/*", Permit::Deny),
        rule("secrets/open", Permit::Allow),
        rule("secrets/open", Permit::Ask),
    ];
    let named = |path: &str| {
        let denying = denying(&rules, "write_file", None, &json!({ "path": path }));
        denying.map(ToString::to_string)
    };
    assert_eq!(named("secrets/a").as_deref(), Some("deny write_file, path = \"secrets/*\""));
    // Also in doubt.
    assert_eq!(named("./secrets/../secrets/a").as_deref(), Some("deny write_file, path = \"secrets/*\""));
    assert_eq!((named("docs/a"), named("secrets/open")), (None, None));
}
