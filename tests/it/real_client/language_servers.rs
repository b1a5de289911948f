//! Real language servers, found in `PATH`; missing ones are skipped with a message.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::daemon::{Home, eventually};

/// A subscriber that is off; the API still lists what it asks for.
const LISTED: &str =
    "[subscriber]\nid = \"listed\"\nenabled = false\n[events]\ntypes = [\"problem.*\", \"source.failed\"]\n";
const SESSION: &str = "s1";
/// Longer than a server takes for a small project once it has read it.
const SETTLED: Duration = Duration::from_secs(15);

/// A project, its file, and texts of it: without an error, and with one error in a line with a
/// code.
struct Project {
    command: &'static [&'static str],
    kind: &'static str,
    files: &'static [(&'static str, &'static str)],
    file: &'static str,
    fine: &'static str,
    wrong: &'static str,
    line: u64,
    code: &'static str,
}

const PROJECTS: [Project; 3] = [
    Project {
        command: &["rust-analyzer"],
        kind: "rust",
        files: &[(
            "Cargo.toml",
            "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
        )],
        file: "src/lib.rs",
        fine: "pub fn total() -> u32 {\n    1\n}\n",
        wrong: "pub fn total() -> u32 {\n    \"one\"\n}\n",
        line: 2,
        code: "E0308",
    },
    Project {
        command: &["typescript-language-server", "--stdio"],
        kind: "typescript",
        files: &[("tsconfig.json", "{ \"compilerOptions\": { \"strict\": true, \"types\": [] } }\n")],
        file: "cart.ts",
        fine: "export const a = 1;\nexport const total: number = 2;\n",
        wrong: "export const a = 1;\nexport const total: number = \"two\";\n",
        line: 2,
        code: "TS2322",
    },
    Project {
        command: &["tsc", "--lsp", "--stdio"],
        kind: "typescript",
        files: &[("tsconfig.json", "{ \"compilerOptions\": { \"strict\": true, \"types\": [] } }\n")],
        file: "cart.ts",
        fine: "export const a = 1;\nexport const total: number = 2;\n",
        wrong: "export const a = 1;\nexport const total: number = \"two\";\n",
        line: 2,
        code: "TS2322",
    },
];

impl Project {
    /// Whether its server can run on this machine.
    fn is_here(&self) -> bool {
        let [program, arguments @ ..] = self.command else { return false };
        let help = if arguments.contains(&"--lsp") { &["--lsp", "--help"][..] } else { &["--version"] };
        let output = Command::new(program).args(help).output();
        output.is_ok_and(|output| output.status.success() || !output.stderr.is_empty() && arguments.len() > 1)
    }

    fn home(&self) -> Home {
        let command: Vec<String> = self.command.iter().map(|word| format!("{word:?}")).collect();
        let settings = format!(
            "[journal]\nsegment_bytes = 1048576\n[sources.lsp]\nenabled = true\nservers.{}.command = [{}]\n",
            self.kind,
            command.join(", ")
        );
        let mut home = Home::with(&[("aside.toml", &settings), ("subscribers/listed.toml", LISTED)]);
        for name in ["HOME", "CARGO_HOME", "RUSTUP_HOME"] {
            if let Some(value) = std::env::var_os(name) {
                home.set(name, value);
            }
        }
        for (name, text) in self.files {
            fs::write(home.path("work").join(name), text).expect("written");
        }
        let file = home.path("work").join(self.file);
        fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).expect("made");
        fs::write(file, self.fine).expect("written");
        home
    }

    fn write(&self, home: &Home, id: &str, text: &str) {
        let path = format!("{}/{}", home.work(), self.file);
        fs::write(&path, text).expect("written");
        let call = json!({ "tool_name": "Write", "tool_use_id": id, "tool_input": { "file_path": path }, "tool_response": "done" });
        let stdin = json!({ "hook_event_name": "PostToolBatch", "session_id": SESSION, "cwd": home.work(), "prompt_id": "p", "tool_calls": [call] });
        assert!(home.hook(&stdin.to_string()).status.success());
    }
}

fn events(home: &Home, event_type: &str) -> Vec<Value> {
    let found = home.get(&format!("/v1/events?type={event_type}&limit=1000"));
    found["events"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|found| found["event"]["payload"].clone())
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "it decides nothing how long a test waits")]
fn pass(duration: Duration) {
    let began = Instant::now();
    eventually("time passes", || (began.elapsed() > duration).then_some(()));
}

#[test]
#[ignore = "needs language servers in PATH"]
fn error_and_its_repair_are_each_published_once() {
    assert!(PROJECTS.iter().any(Project::is_here), "none of the servers is in PATH");
    for project in PROJECTS.iter().filter(|project| project.is_here()) {
        let (home, name) = (project.home(), project.command.join(" "));
        let daemon = home.serve();
        project.write(&home, "t0", &format!("{}\n", project.fine));
        // The first analysis of a project has no time limit of its own; the machine may be busy.
        let mut log = String::new();
        while !log.contains("a language server is ready") {
            pass(Duration::from_secs(1));
            log += &daemon.said_so_far();
        }
        project.write(&home, "t1", project.wrong);
        let found = eventually("it is found", || events(&home, "problem.found").pop());
        pass(SETTLED);
        let all = events(&home, "problem.found");
        assert_eq!(all.len(), 1, "{name}: {all:?}");
        assert_eq!(
            (found["line"].as_u64(), found["code"].as_str()),
            (Some(project.line), Some(project.code)),
            "{name}"
        );
        assert_eq!(found["file"], project.file, "{name}");
        for number in 0..20 {
            let text = if number % 2 == 0 { project.fine } else { project.wrong };
            project.write(&home, &format!("q{number}"), &format!("{text}// {number}\n"));
        }
        project.write(&home, "t2", project.fine);
        eventually("it is cleared", || events(&home, "problem.cleared").pop());
        pass(SETTLED);
        let counts =
            ["problem.found", "problem.fixed", "problem.cleared"].map(|name| events(&home, name).len());
        assert_eq!(counts, [1, 1, 1], "{name}: {:?}", events(&home, "problem.*"));
    }
}
