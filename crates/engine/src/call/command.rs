//! The effects of a shell command, as far as its words show: the files that it prints, and whether
//! it may write files.
//!
//! The words are neither executed nor resolved. Every command that is not known to be harmless
//! counts as writing: a change that an agent's own command may have made is then not reported to
//! that agent.

/// Programs that print the files in their arguments.
const VIEWERS: [&str; 11] =
    ["bat", "batcat", "cat", "head", "less", "more", "nl", "sed", "tac", "tail", "view"];

/// Programs that write no project files, whatever their arguments are.
///
/// Source: the commands that agents run most besides editing: listing, searching, waiting, and
/// querying a remote machine.
const HARMLESS: [&str; 60] = [
    "[",
    "alias",
    "basename",
    "bat",
    "batcat",
    "cat",
    "cd",
    "cmp",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "dmesg",
    "du",
    "echo",
    "export",
    "false",
    "file",
    "grep",
    "egrep",
    "fgrep",
    "head",
    "hexdump",
    "hostname",
    "id",
    "jq",
    "kill",
    "less",
    "ls",
    "lsof",
    "man",
    "md5sum",
    "more",
    "nl",
    "nproc",
    "pgrep",
    "ping",
    "printenv",
    "printf",
    "ps",
    "pwd",
    "rg",
    "seq",
    "set",
    "sha256sum",
    "sleep",
    "ss",
    "stat",
    "tac",
    "tail",
    "test",
    "tree",
    "true",
    "type",
    "uname",
    "uptime",
    "wait",
    "wc",
    "which",
];

/// Programs, and their first words, that build, check or test, and write their results only to
/// places where nobody edits.
const HARMLESS_WITH: [(&str, &[&str]); 17] = [
    ("bun", &["test"]),
    ("cargo", &["bench", "build", "check", "clippy", "doc", "metadata", "nextest", "run", "test", "tree"]),
    ("docker", &["inspect", "logs", "ps"]),
    ("go", &["build", "list", "test", "version", "vet"]),
    ("gradle", &["build", "check", "test"]),
    ("jest", &[]),
    ("mocha", &[]),
    ("mvn", &["compile", "test", "verify"]),
    ("mypy", &[]),
    ("npm", &["ls", "run test", "t", "test", "view"]),
    ("pnpm", &["ls", "run test", "test"]),
    ("pyright", &[]),
    ("pytest", &[]),
    ("rspec", &[]),
    ("tsc", &["--noEmit"]),
    ("vitest", &[]),
    ("yarn", &["test"]),
];

/// Words of commands that end processes: programs, and the subcommands of other programs, such as
/// `docker stop`.
const ENDING: [&str; 11] = [
    "down",
    "fuser",
    "kill",
    "kill-port",
    "kill-server",
    "kill-session",
    "killall",
    "pkill",
    "restart",
    "skill",
    "stop",
];

/// Words before a program that only change how it runs.
const PREFIXES: [&str; 9] =
    ["builtin", "command", "env", "exec", "nice", "nohup", "stdbuf", "time", "timeout"];

/// One program of a command, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// The program and its arguments, without quotes.
    pub words: Vec<String>,
    /// The files to which its output is redirected.
    pub outputs: Vec<String>,
}

impl Step {
    /// The program's name, without its folder and the words before it; empty if there is no
    /// program.
    pub fn program(&self) -> &str {
        let name = self.own_words().first().map_or("", String::as_str);
        name.rsplit('/').next().unwrap_or(name)
    }

    /// The words, beginning with the program.
    pub(super) fn own_words(&self) -> &[String] {
        let is_before = |word: &String| {
            let is_variable = word.split_once('=').is_some_and(|(name, _)| is_name(name));
            is_variable || PREFIXES.contains(&word.as_str()) || is_amount(word)
        };
        let begin = self.words.iter().position(|word| !is_before(word)).unwrap_or(self.words.len());
        self.words.get(begin..).expect("the position of a word, or the end")
    }

    fn arguments(&self) -> &[String] {
        match self.own_words() {
            [_, arguments @ ..] => arguments,
            [] => &[],
        }
    }

    /// Whether the step may have written project files.
    pub fn may_write(&self) -> bool {
        if self.outputs.iter().any(|output| !output.starts_with("/dev/")) {
            return true;
        }
        let program = self.program();
        if program.is_empty() || HARMLESS.contains(&program) {
            return false;
        }
        let has = |flag: &str| self.arguments().iter().any(|argument| argument == flag);
        match program {
            "sed" => !has("-n") || self.arguments().iter().any(|argument| argument.starts_with("-i")),
            "find" => ["-delete", "-exec", "-execdir", "-fprint", "-ok"].into_iter().any(has),
            "curl" => self.is_saving(),
            _ => !self.is_harmless_with_arguments(program),
        }
    }

    /// Whether `curl` saves a response in a file.
    fn is_saving(&self) -> bool {
        let nexts = self.arguments().iter().skip(1).map(String::as_str).chain([""]);
        self.arguments().iter().zip(nexts).any(|(argument, next)| {
            let is_long = ["--output", "--remote-name"].iter().any(|option| argument.starts_with(option));
            // Several options may share a word; the rest of it may be the value of one of these.
            let options =
                argument.strip_prefix('-').and_then(|options| options.split(['d', 'H', 'u', 'X']).next());
            let is_short =
                options.is_some_and(|options| !options.starts_with('-') && options.contains(['o', 'O']));
            (is_long || is_short) && !next.starts_with("/dev/")
        })
    }

    fn is_harmless_with_arguments(&self, program: &str) -> bool {
        let Some((_, allowed)) = HARMLESS_WITH.iter().find(|(name, _)| *name == program) else {
            return false;
        };
        let given = self.arguments().join(" ");
        let is_fixing = self.arguments().iter().any(|argument| argument.starts_with("--fix"));
        let is_allowed = |word: &str| {
            given.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ':']))
        };
        !is_fixing && (allowed.is_empty() || allowed.iter().any(|word| is_allowed(word)))
    }
}

/// The programs that `command` runs, in text order.
///
/// Shape: split at `|`, `&&`, `||`, `;`, `&` and line ends; text in parentheses or after `$(` is
/// included.
pub fn steps(command: &str) -> Vec<Step> {
    let (mut steps, mut step, mut word) = (Vec::new(), Step::default(), Word::default());
    let mut chars = command.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                // The line continues.
                Some('\n') => {}
                next => word.push(next),
            },
            '\'' => word.extend(chars.by_ref().take_while(|c| *c != '\'')),
            '"' => {
                word.is_begun = true;
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    word.push(if c == '\\' { chars.next() } else { Some(c) });
                }
            }
            '>' => {
                // A number before `>` is a stream number.
                if word.text.chars().all(|c| c.is_ascii_digit() || c == '&') {
                    word = Word::default();
                }
                word.end(&mut step);
                let is_of_a_stream = skip_of_redirection(&mut chars);
                word.is_output = !is_of_a_stream;
            }
            '<' => {
                word.end(&mut step);
                while chars.next_if(|c| *c == '<' || *c == '&').is_some() {}
            }
            '|' | ';' | '&' | '\n' | '(' | ')' | '`' => {
                word.end(&mut step);
                steps.push(std::mem::take(&mut step));
            }
            '#' if !word.is_begun => while chars.next_if(|c| *c != '\n').is_some() {},
            c if c.is_whitespace() => word.end(&mut step),
            '$' if chars.peek() == Some(&'(') => {}
            c => word.push(Some(c)),
        }
    }
    word.end(&mut step);
    steps.push(step);
    steps.retain(|step| !step.words.is_empty() || !step.outputs.is_empty());
    steps
}

/// Skips the rest of a redirection; returns whether a stream follows, as in `2>&1`.
fn skip_of_redirection(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    while chars.next_if(|c| *c == '>' || *c == '|').is_some() {}
    let is_of_a_stream = chars.next_if_eq(&'&').is_some();
    if is_of_a_stream {
        while chars.next_if(|c| c.is_ascii_digit() || *c == '-').is_some() {}
        return true;
    }
    while chars.next_if(|c| *c == ' ').is_some() {}
    false
}

/// Whether a command may end processes, by any of its words. A command that only mentions such a
/// word counts too.
pub fn may_end_processes(command: &str) -> bool {
    let words =
        |step: &Step| step.words.iter().any(|word| ENDING.contains(&word.rsplit('/').next().unwrap_or(word)));
    steps(command).iter().any(words)
}

/// Whether a command may have written project files.
pub fn may_write(command: &str) -> bool {
    steps(command).iter().any(Step::may_write)
}

/// The absolute paths of the files that a command prints, as named in its words. Names are relative
/// to `folder`, and each `cd` changes it.
pub fn shown(command: &str, folder: &str) -> Vec<String> {
    let (mut folder, mut shown) = (folder.to_owned(), Vec::new());
    for step in steps(command) {
        let program = step.program();
        let arguments = step.arguments().iter().filter(|word| !word.starts_with('-'));
        match program {
            "cd" => {
                if let Some(to) = arguments.into_iter().next() {
                    folder = absolute(to, &folder);
                }
            }
            "sed" if step.may_write() => {}
            // The first word is the script.
            "sed" => shown.extend(arguments.skip(1).map(|path| absolute(path, &folder))),
            _ if VIEWERS.contains(&program) => shown.extend(arguments.map(|path| absolute(path, &folder))),
            _ => {}
        }
    }
    shown
}

/// The absolute path, without `.` and `..`.
///
/// Shape: `..` at the root stays at the root. Symbolic links are not followed.
pub fn absolute(path: &str, folder: &str) -> String {
    let begin = if path.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = Vec::new();
    for part in begin.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether a word is an amount, such as the `5s` of `timeout 5s` and the `-n` and `10` of `nice -n
/// 10`.
fn is_amount(word: &str) -> bool {
    word == "-n" || word.starts_with(|c: char| c.is_ascii_digit()) && word.len() <= 6
}

#[derive(Debug, Default)]
struct Word {
    text: String,
    /// Whether the word has begun; it may be empty.
    is_begun: bool,
    /// Whether the word is the file of a redirection.
    is_output: bool,
}

impl Word {
    fn push(&mut self, c: Option<char>) {
        self.is_begun = true;
        self.text.extend(c);
    }

    fn extend(&mut self, chars: impl Iterator<Item = char>) {
        self.is_begun = true;
        self.text.extend(chars);
    }

    fn end(&mut self, step: &mut Step) {
        let Self { text, is_begun, is_output } = std::mem::take(self);
        match (is_begun, is_output) {
            (true, true) => step.outputs.push(text),
            (true, false) => step.words.push(text),
            // The file follows after a blank.
            (false, _) => self.is_output = is_output,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_splits_into_programs_words_and_outputs() {
        for (command, expected) in [
            ("cat a.rs", "cat a.rs"),
            ("cd x && cat 'a b' \"c\\\"d\" e\\ f|wc", "cd x / cat a b c\"d e f / wc"),
            ("make >out.txt 2>&1; echo $(date)", "make >out.txt / echo / date"),
            ("a \\\n  b\\\nc", "a bc"),
            ("a 2> /dev/null >> log & b", "a >/dev/null >log / b"),
            ("x < in # not this > y\nz ''", "x in / z "),
            ("", ""),
        ] {
            let shown = steps(command).into_iter().map(|step| {
                let outputs = step.outputs.iter().map(|output| format!(">{output}"));
                step.words.iter().cloned().chain(outputs).collect::<Vec<_>>().join(" ")
            });
            assert_eq!(shown.collect::<Vec<_>>().join(" / "), expected, "{command}");
        }
    }

    #[test]
    fn commands_not_listed_as_harmless_may_write() {
        for command in [
            "sleep 3; echo mark",
            "cargo test -p cart 2>&1 | tail -5",
            "RUST_LOG=x timeout 60 cargo nextest run",
            "sed -n 1,5p a.rs",
            "rg -n foo src | head",
            "npm run test:unit",
            "pytest tests/",
            "ls -la > /dev/null",
            "find . -name '*.rs'",
            "cd sub && grep -r x .",
            "go vet ./...",
            "",
            "/usr/bin/cat a",
            "env",
            "env A=1 cargo test",
            "curl -fsS -XPOST --oauth2-bearer x http://localhost/health",
            "curl -so /dev/null -w '%{http_code}' http://localhost/health",
        ] {
            assert!(!may_write(command), "{command}");
        }
        for command in [
            "sed -i s/a/b/ a.rs",
            "cargo fmt",
            "env A=1 cargo fmt",
            "curl -fsSLo src/schema.json https://example.com",
            "curl --output a.json https://example.com",
            "curl -O https://example.com/a.json",
            "npm install",
            "python gen.py",
            "git checkout main",
            "echo x > a.rs",
            "make",
            "./build.sh",
            "tee a.rs",
            "find . -delete",
            "cat a | tee b",
            "true && mv a b",
            "cargo clippy --fix",
            "npm run build",
            "sh -c 'echo x'",
            "sed s/a/b/w/x a",
        ] {
            assert!(may_write(command), "{command}");
        }
    }

    #[test]
    fn printed_files_are_listed_with_absolute_paths() {
        for (command, expected) in [
            ("cat a.rs ../b.rs", "/w/a.rs /b.rs"),
            ("cd src; head -5 a.rs | wc -l", "/w/src/a.rs"),
            ("sed -n '1,20p' a.rs && cat /etc/hosts", "/w/a.rs /etc/hosts"),
            ("sed -i s/a/b/ a.rs", ""),
            ("grep x a.rs", ""),
            ("nl ./a.rs", "/w/a.rs"),
        ] {
            assert_eq!(shown(command, "/w").join(" "), expected, "{command}");
        }
    }
}
