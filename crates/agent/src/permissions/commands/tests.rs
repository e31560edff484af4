use std::io::Write as _;

use super::*;

const DENIED: &str = "rm *";

/// Spellings of a program `rm`, of which `DIR` is the folder and `Y` has the value `r`.
const SPELLINGS: [&str; 25] = [
    "rm",
    "r''m",
    "r\\m",
    "\"r\"m",
    "r\\\nm",
    "$(echo rm)",
    "`echo rm`",
    "`echo \\`echo rm\\``",
    "r`echo m`",
    "$(echo \\)>/dev/null; echo rm)",
    "\"$(echo ')' >/dev/null; printf r)\"m",
    "${Z}r${Z}m",
    "${Z:-r}m",
    "${Z:-\"r\"}m",
    "${Y}m",
    "$Y''m",
    "DIR/rm",
    "DIR/r?",
    "DIR/[r]m",
    "DIR/r*",
    "$\\\nY''m",
    "\"$\\\nY\"m",
    "1x=/../../bin/r${Z}m",
    "x+=/../../bin/r${Z}m",
    "x[1]=/../../bin/r${Z}m",
];

/// Texts that may change the meaning of a line wherever they are inserted.
const CHANGES: [&str; 46] = [
    "\\\n",
    "''",
    "\"\"",
    "\\",
    "'",
    "\"",
    "`",
    "$",
    "(",
    ")",
    "{ ",
    "}",
    ";",
    "&",
    "|",
    "<",
    ">",
    "#",
    " ",
    "\n",
    "\t",
    "!",
    "=",
    "[",
    "]",
    "~",
    "*",
    "$(",
    "${",
    "<<E\n",
    "do ",
    "in ",
    "time ",
    "for i do ",
    "case ",
    "esac;",
    "$((",
    "))",
    "2>",
    "x=",
    "x+=",
    "1=",
    "a[1]=",
    "command ",
    "export ",
    ". ",
];

/// Programs before another one that they execute.
const RUNNERS: [&str; 14] = [
    "env",
    "env -i PATH=DIR Y=r",
    "env A=b",
    "nice",
    "nice -n 1",
    "timeout 5",
    "timeout -s KILL 5",
    "taskset 1",
    "setsid -w",
    "nohup",
    "stdbuf -o0",
    "command",
    "exec",
    "xargs",
];

/// Command lines that run `PROGRAM x`.
const LINES: [&str; 83] = [
    "PROGRAM x",
    "PROGRAM",
    "echo a; PROGRAM x",
    "true && PROGRAM x",
    "false || PROGRAM x",
    "echo a | PROGRAM x",
    "PROGRAM x & wait",
    "(PROGRAM x)",
    "{ PROGRAM x; }",
    "! PROGRAM x",
    "if true; then PROGRAM x; fi",
    "if PROGRAM x; then :; fi",
    "while PROGRAM x; do break; done",
    "for i in a; do PROGRAM x; done",
    "case a in a) PROGRAM x;; esac",
    "case a in (b) ;; *) PROGRAM x;; esac",
    "f() { PROGRAM x; }; f",
    "f() { \"$@\"; }; f PROGRAM x",
    "cat() { env \"$@\"; }; cat PROGRAM x",
    "set -- PROGRAM x; \"$@\"",
    "W=PROGRAM; $W x",
    "A=1 PROGRAM x",
    "A=a\\ b PROGRAM x",
    "A='a b' PROGRAM x",
    "A=\"a b\" PROGRAM x",
    "A=`echo a b` PROGRAM x",
    "A=$(echo \\)) PROGRAM x",
    "A=\"$(echo ')' )\" PROGRAM x",
    ">f PROGRAM x",
    ">f\\ g PROGRAM x",
    ">'f g' PROGRAM x",
    "2>&1 PROGRAM x",
    "<<E PROGRAM x\na'b\nE",
    "cat <<E\n'\nE\nPROGRAM x\ncat <<E\n'\nE",
    "cat <<'E F'\n'\nE F\nPROGRAM x #'",
    "cat <<-E\n\t'\n\tE\nPROGRAM x #'",
    "cat <<E <<F\n'\nE\n'\nF\nPROGRAM x\n: '\nE'",
    "cat <<E\n$(PROGRAM x)\nE",
    "cat <<E\n`PROGRAM x`\nE",
    "#'\nPROGRAM x\n#'",
    ": a#'b'; PROGRAM x",
    "echo \\`; PROGRAM x",
    "echo '`'; PROGRAM x",
    "echo \\\\'\\'; PROGRAM x; echo ''",
    "echo \"a'b\"; PROGRAM x; echo \"c'd\"",
    "echo \"\\\"\"; PROGRAM x; echo \"\"",
    "echo a\\\n; PROGRAM x",
    "echo $((1 + (2))); PROGRAM x",
    "echo $( (echo a); PROGRAM x)",
    "echo \"$(echo ')'; PROGRAM x)\"",
    "echo \"$(case a in a) echo;; esac; PROGRAM x)\"",
    "echo \"$(: # )\n PROGRAM x)\"",
    "echo \"${Z:-$(PROGRAM x)}\"",
    "echo \"${Z:-a'b}\"; PROGRAM x; : \"'\"",
    "A=$(PROGRAM x)",
    "eval PROGRAM x",
    "eval 'PROGRAM x'",
    "sh -c 'PROGRAM x'",
    "echo 'PROGRAM x' | sh",
    "sh <<E\nPROGRAM x\nE",
    "env -S'PROGRAM x'",
    "env '-SPROGRAM x'",
    "env --split-string='PROGRAM x'",
    "script -qc'PROGRAM x' /dev/null",
    "trap 'PROGRAM x' EXIT",
    "alias q='PROGRAM'\nq x",
    "echo x | xargs PROGRAM",
    "echo PROGRAM x | xargs env",
    "echo PROGRAM | xargs -I{} env {} x",
    "echo PROGRAM | xargs -I% timeout 5 % x",
    "echo PROGRAM | xargs -rI DIR/q env DIR/q x",
    "find . -maxdepth 0 -exec PROGRAM x ';'",
    "find DIR -name 'r[m]' -exec {} x ';'",
    "set 1; for i do PROGRAM x; done",
    "set 1; for i do eval 'PROGRAM x'; done",
    "fo\\\nr i in a; d\\\no PROGRAM x; done",
    "echo \"$\\\n(PROGRAM x)\"",
    "cat <\\\n<E\n'\nE\nPROGRAM x #'",
    "true &\\\n& PROGRAM x",
    "command . /dev/stdin <<E\nPROGRAM x\nE",
    "EDITOR='PROGRAM x' edit",
    "export EDITOR='a=1 PROGRAM x'; edit",
    "time -f ls PROGRAM x",
];

/// Command lines that run `PROGRAM x` in `bash`.
const LINES_OF_BASH: [&str; 16] = [
    "coproc ls { PROGRAM x; }; wait",
    "function f for i in a; do PROGRAM x; done; f",
    "echo 1 | select i in a; do PROGRAM x; break; done",
    "set 1; echo 1 | select i do PROGRAM x; break; done",
    "shopt -s extglob\nDIR/r@()m x",
    "BASH_ALIASES[q]='PROGRAM'\nq x",
    "BASH_CMDS[q]=DIR/r${Z}m; q x",
    "jobs -x PROGRAM x",
    "builtin . /dev/stdin <<E\nPROGRAM x\nE",
    "a='S4=$'; b='(PROGRAM x)'; export \"P$a$b\"; set -x; :",
    "a='z[$'; b='(PROGRAM x)]'; c=$a$b; echo $((c))",
    "a='z[$'; b='(PROGRAM x)]'; c=$a$b; echo ${b:c}",
    "a='z[$'; b='(PROGRAM x)]'; c=$a$b; declare -i d=c",
    "a='z[$'; b='(PROGRAM x)]'; c=$a$b; test -v \"$c\"",
    "((1<<E))\nPROGRAM x\nE",
    "a[1<<E ]=2\nPROGRAM x\nE",
];

/// A shell, and a folder with a program `rm` that only leaves a mark, and with what the command lines need.
#[cfg(unix)]
struct Programs {
    folder: tempfile::TempDir,
    shell: std::path::PathBuf,
}

#[cfg(unix)]
impl Programs {
    /// Returns `None` without the shell.
    fn new(shell: &str) -> Option<Self> {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["bin", "shell", "work", "work/1x=", "work/x+=", "work/x[1]="] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let script = |name: &str, text: String| {
            std::fs::write(at(name), format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        script("bin/rm", format!(": > '{}'", at("mark").display()));
        script("bin/edit", "eval \"$EDITOR\"".to_owned());
        let find = |name: &str| {
            ["/usr/bin", "/bin"]
                .map(|folder| std::path::Path::new(folder).join(name))
                .into_iter()
                .find(|at| at.exists())
        };
        let needed = [
            "cat", "env", "find", "nice", "nohup", "script", "setsid", "sh", "stdbuf", "taskset", "time",
            "timeout", "xargs",
        ];
        for name in needed {
            if let Some(program) = find(name) {
                symlink(program, at("bin").join(name)).unwrap();
            }
        }
        // Under the name with which commands are run.
        symlink(find(shell)?, at("shell/sh")).unwrap();
        Some(Self { shell: at("shell/sh"), folder })
    }

    fn line(&self, line: &str, program: &str) -> String {
        let bin = self.folder.path().join("bin");
        format!("Y=r; {}", line.replace("PROGRAM", program)).replace("DIR", bin.to_str().unwrap())
    }

    /// Returns whether a command line runs `rm`.
    fn run_rm(&self, line: &str) -> bool {
        use std::process::{Command, Stdio};
        let mark = self.folder.path().join("mark");
        let _ = std::fs::remove_file(&mark);
        let mut shell = Command::new(&self.shell);
        shell.arg("-c").arg(line).env_clear().env("PATH", self.folder.path().join("bin"));
        shell.current_dir(self.folder.path().join("work"));
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.status().unwrap();
        mark.exists()
    }

    /// Returns the lines with combinations of spellings and programs that run others.
    fn combined(&self, texts: &[&str]) -> Vec<String> {
        let mut lines = Vec::new();
        // Each line in plain form and with some spellings, and each spelling in plain form; then others of all combinations.
        for (at, line) in texts.iter().enumerate() {
            for spelling in [0, 3, 5 + at % 4, 11 + at % 9, 18, 20 + at % 5] {
                lines.push(self.line(line, SPELLINGS[spelling]));
            }
            for runner in [at % RUNNERS.len(), (at * 5 + 3) % RUNNERS.len()] {
                let spelling = SPELLINGS[(at * 7 + runner) % SPELLINGS.len()];
                lines.push(self.line(line, &format!("{} {spelling}", RUNNERS[runner])));
            }
        }
        for (at, spelling) in SPELLINGS.iter().enumerate() {
            lines.push(self.line(texts[0], spelling));
            for (number, runner) in RUNNERS.iter().enumerate() {
                let second = RUNNERS[(at + number * 3) % RUNNERS.len()];
                lines.push(self.line(texts[0], &format!("{runner} {spelling}")));
                let text = texts[(at * 3 + number) % texts.len()];
                lines.push(self.line(text, &format!("{runner} {second} {spelling}")));
            }
        }
        lines
    }
}

#[cfg(unix)]
#[test]
fn whatever_runs_a_program_in_a_shell_is_denied() {
    for (shell, texts) in [("dash", &LINES[..]), ("bash", &LINES), ("bash", &LINES_OF_BASH)] {
        let Some(programs) = Programs::new(shell) else {
            // Prints past the capture of the test harness.
            let _ = writeln!(std::io::stderr(), "\nSKIPPED: there is no `{shell}`\n");
            continue;
        };
        let lines = programs.combined(texts);
        let passed: Vec<_> = lines.iter().filter(|line| fit(DENIED, line) == Fit::No).collect();
        let bypasses: Vec<_> = passed.iter().filter(|line| programs.run_rm(line)).collect();
        assert!(bypasses.is_empty(), "{} of {} in {shell}: {bypasses:#?}", bypasses.len(), lines.len());
        // The lines do what they are for.
        let plain = texts.iter().map(|line| programs.line(line, "rm")).filter(|line| !programs.run_rm(line));
        let may_lack = ["script ", "taskset ", "time "];
        let idle: Vec<_> = plain.filter(|line| !may_lack.iter().any(|name| line.contains(name))).collect();
        assert!(idle.is_empty(), "{shell}: {idle:#?}");
    }
    let Some(programs) = Programs::new("dash") else { return };
    let spelled = SPELLINGS.iter().map(|spelling| programs.line(LINES[0], spelling));
    let idle: Vec<_> = spelled.filter(|line| !programs.run_rm(line)).collect();
    assert!(idle.is_empty(), "{idle:#?}");
}

/// Lines in lines, with changes at any place.
#[cfg(unix)]
#[test]
fn a_changed_line_that_still_runs_the_program_is_denied() {
    use proptest::{
        collection::vec,
        prelude::any,
        sample::{Index, select},
        test_runner::{Config, TestRunner},
    };
    let lines = vec(select(&LINES[..]), 1..4);
    let changes = vec((any::<Index>(), select(&CHANGES[..])), 0..4);
    for shell in ["dash", "bash"] {
        let Some(programs) = Programs::new(shell) else {
            // Prints past the capture of the test harness.
            let _ = writeln!(std::io::stderr(), "\nSKIPPED: there is no `{shell}`\n");
            continue;
        };
        let mut runner =
            TestRunner::new(Config { cases: 500, failure_persistence: None, ..Config::default() });
        let cases = (lines.clone(), select(&SPELLINGS[..]), changes.clone());
        let run = runner.run(&cases, |(lines, spelling, changes)| {
            let nested =
                lines.iter().fold("PROGRAM x".to_owned(), |inner, line| line.replace("PROGRAM x", &inner));
            let mut line = programs.line(&nested, spelling);
            for (at, change) in changes {
                let places: Vec<usize> = line.char_indices().map(|(at, _)| at).collect();
                line.insert_str(*at.get(&places), change);
            }
            assert!(fit(DENIED, &line) != Fit::No || !programs.run_rm(&line), "{line}");
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("in {shell}: {error}"));
    }
}

#[test]
fn computed_words_may_be_any_word_of_a_pattern() {
    for (pattern, lines) in [
        (
            "git push *",
            &[
                "X=push; git $X origin",
                "git `echo push` origin",
                "git $(echo pu)sh origin",
                "git pu?h origin",
                "git $EMPTY push origin",
                "git \"$X\" origin",
                "echo push | xargs git",
            ][..],
        ),
        ("{rm,git push} *", &["git p${X}sh", "taskset 1 /bin/r?"]),
        ("cat /etc/*", &["cat $X", "cat /e?c/passwd", "cat \"$X\"passwd", "cat /etc/`echo passwd`"]),
        ("curl * | sh", &["curl x | $X", "$(echo curl) x | sh", "curl x | bash", "curl x | env sh"]),
        ("echo x > out", &["echo x > $Y", "echo x > o?t", "echo x >\"o\"ut"]),
        (
            DENIED,
            &[
                "rbash -c '$0'",
                "bash-5.2 x",
                "unshare r$()m x",
                "exec 3<<E; . /dev/fd/3\nE",
                "printf r%s m | xargs -n1 nice",
                "printf r%s m | xargs --repl={} {} x",
                "shopt -s extglob\n/bin/@(r)m x",
                "a=(r m); x",
                "test -v 'a[$(r\"\"m x)]'",
                "PS4='$(r\"\"m x)'; set -x; :",
                "x='$(r\"\"m x)'; echo ${x@P}",
                "echo ${x@P}",
                "git -c alias.z='!r'm z",
                "HOME=/bin/r; ~ x",
                "diff <($X) y",
                "env -S'rm\\_x'",
                "watch 'r\"\"m x'",
                "find . $X",
                "{fd}>f $X",
                "ls \u{a0}x",
                "parallel ls '; r\"\"m x' ::: a",
                "echo '/bin/r? x' | unshare",
                "echo '/bin/r? x' | nice setarch x86_64",
                "echo '/bin/r? x' | sudo -u root -s",
                "x='$'; y='(/bin/r? x)'; BASH_ENV=$x$y ldd ls",
                "GIT_SSH_COMMAND='/bin/r? x' git fetch ssh://x/y",
                "env 'A=/bin/r? x' git fetch",
                "read \"$X\" < f",
            ],
        ),
    ] {
        for line in lines {
            assert_ne!(fit(pattern, line), Fit::No, "`{pattern}` and `{line}`");
        }
    }
}

#[test]
fn a_shell_or_the_program_in_a_part_of_a_word_is_denied() {
    for line in [
        "env -Ssh",
        "env -vSsh",
        "env -S'nice sh'",
        "split --filter=sh x",
        "EDITOR=sh git commit -e",
        "export EDITOR=/bin/sh; git commit -e",
        "git -c alias.x='!sh' x",
        "git -calias.x=!sh x",
        "git -c core.pager=zsh log",
        "tar x --to-command=bash",
        "tar c --checkpoint-action=exec=sh x",
        "ssh -oProxyCommand=sh x",
        "rsync -e sh a b",
        "make SHELL=/bin/bash-5.2",
        "find . -execdir dash ;",
        "python3 -c 'import os; os.system(\"sh\")'",
        "wait -p 'a[$(x)]'",
        "wait -p \"$x\"",
        "env -Srm x",
        "env -iSrm",
        "split --filter='rm x' y",
        "git -c alias.x='!rm x' x",
        "echo \"how to rm\"",
        "env > ls $X",
        "env &> ls $X",
        "echo '/bin/r? x' | ed",
        "hash -p /usr/bin/env ls; ls $X",
        "alias ls=env\nls $X",
        "ls() ( \"$@\" ); ls $X",
        "declare 'BASH_CMDS[ls]=/usr/bin/env'; ls $X",
        "find . $X",
        "printf -v 'a[$(x)]' y",
    ] {
        assert_ne!(fit(DENIED, line), Fit::No, "{line}");
    }
}

#[test]
fn everyday_lines_are_not_denied() {
    for line in [
        "git status",
        "git add src && git commit -m \"it's done (really)\"",
        "cargo test 2>&1 | tail -5",
        "cargo test 2>/dev/null | grep -E '^error|: .*\\.rs$' | wc -l",
        "cargo test --workspace 'a::b' -- --nocapture > log; tail log",
        "RUST_LOG=\"a b\" cargo run -- --name='x y'",
        "ls *.rs",
        "ls -lash ~/work",
        "echo \"$HOME\" ${X} {a,b} > \"$Y\"",
        "for f in a b; do wc -l \"$f\"; done",
        "find . -name '*.rs' -not -path './target/*'",
        "git ls-files | grep '\\.rs$'",
        "mkdir -p src/{a,b} && touch src/a/x",
        "sed -n '1,5p' x",
        "[ -f x ] || make",
        "docker run --rm -it image x",
        "npm run build -- --perm=x",
        "sudo ls -l '/a b'",
        "sudo apt-get install -y x",
        "timeout 5 cargo test",
        "date +%s; sleep 1",
        "time ls \"$X\"; CFLAGS='-O2 -Wall' make -C . all",
        "command -v docker; git show HEAD~1",
    ] {
        assert_eq!(fit(DENIED, line), Fit::No, "{line}");
    }
}

/// Harmless lines that are denied, because only a shell knows what they run.
#[test]
fn computed_parts_are_denied_with_any_program_but_plain_ones() {
    for line in [
        "git add src/*.rs",
        "git diff $(git merge-base main HEAD)",
        "git commit -m \"$(cat <<'EOF'\nFix it\nEOF\n)\"",
        "for f in *.rs; do wc -l \"$f\"; done",
        "find src -type f | xargs -n1 wc -l",
        "cat > a.txt <<'EOF'\nx\nEOF",
        "awk '{print $1}' x",
        "(cd a && make)",
        "[ -z \"$X\" ] && ls",
        "export PATH=\"$PATH:/x\"",
        "ls # a comment",
        "cargo build \\\n --release",
    ] {
        assert_eq!(fit(DENIED, line), Fit::Maybe, "{line}");
    }
}

#[test]
fn quoted_substitutions_in_subscripts_are_not_allowed() {
    for (pattern, line, then) in [
        ("test *", "test -v 'a[$(touch x)]'", Fit::Maybe),
        ("test *", "test -v 'a[`touch x`]'", Fit::Maybe),
        ("printf *", "printf -v \"a[\\$(touch x)]\" y", Fit::Maybe),
        ("printf *", "printf -v 'a[${ touch x; }]' y", Fit::Maybe),
        ("unset *", "unset a'['\\$'(touch x)]'", Fit::Maybe),
        ("test -v 'a[$(touch x)]'", "test -v  'a[$(touch x)]'", Fit::Yes),
        ("printf *", "printf '$(x) %s' '[a]'", Fit::Yes),
        ("test *", "test -n 'a[1]'", Fit::Yes),
    ] {
        assert_eq!(fit(pattern, line), then, "`{pattern}` and `{line}`");
    }
}

/// The cost of a hostile line is bounded.
#[test]
fn a_line_of_many_runners_is_denied_soon() {
    for line in
        ["env xargs ".repeat(400), "xargs ".repeat(600), "$(".repeat(2_000), "a\\ ".repeat(1_300) + "$x"]
    {
        assert_eq!(fit(&"*a".repeat(1_000), &line), Fit::Maybe);
    }
    let quoted =
        (0..12).fold("ls".to_owned(), |inner, _| format!("env \"{}\"", inner.replace(['\\', '"'], "\\$0")));
    assert_ne!(fit(DENIED, &quoted), Fit::Yes);
}
