//! The help of the program: its commands in groups, and examples for each.

use std::fmt::Write as _;

use clap::{Command, builder::Styles};

use crate::harness::table::KINDS;

/// Commands of one kind, each with examples.
struct Group {
    title: &'static str,
    commands: &'static [(&'static str, &'static [&'static str])],
}

/// Every visible command, once. In examples `@NAME` and `@WORD` are those of a harness.
const GROUPS: [Group; 5] = [
    Group {
        title: "Everyday",
        commands: &[
            ("demo", &["aside demo"]),
            ("install", &["aside install @NAME", "aside install @NAME --dry-run"]),
            ("uninstall", &["aside uninstall @NAME"]),
            ("up", &["aside up"]),
            ("down", &["aside down"]),
            ("doctor", &["aside doctor", "aside doctor --verbose"]),
            (
                "run",
                &[
                    "aside run -- cargo test",
                    "aside run --watch -- npx tsc -w",
                    "aside run --report junit=out.xml -- pytest --junitxml out.xml",
                ],
            ),
            (
                "watch",
                &[
                    "aside watch 'exit 4711' --note 'the build ended'",
                    "aside watch 'port 3000' 'line dev.log /ERROR/'",
                    "aside watch ci",
                    "aside watch",
                ],
            ),
            ("remind", &["aside remind 'in 20m' 'push the branch'", "aside remind 'at 14:30' standup"]),
            ("inbox", &["aside inbox", "aside inbox dismiss last", "aside inbox snooze last --for 1h"]),
            (
                "silence",
                &[
                    "aside silence add --subscriber ci_check --for 2h",
                    "aside silence add --where \"payload.zone == 'eu'\" --comment 'db move'",
                    "aside silence last --for 2h",
                    "aside silence expire --all",
                ],
            ),
            ("mute", &["aside mute --type 'mcp.**' --below high", "aside mute"]),
            ("unmute", &["aside unmute 1"]),
            ("disable", &["aside disable welcome_back", "aside disable ci_check --for 2h"]),
            ("enable", &["aside enable welcome_back"]),
            ("why", &["aside why last"]),
            ("history", &["aside history --since 1h", "aside history --reason silenced"]),
        ],
    },
    Group {
        title: "Agents and sessions",
        commands: &[
            ("sessions", &["aside sessions"]),
            (
                "publish",
                &[
                    "aside publish tool.call.failure tool_name=grep error_type=timeout",
                    "aside publish task.failed task=build --everywhere",
                    "aside publish --input events.ndjson",
                ],
            ),
            ("region", &["aside region", "aside region --session demo --format markdown --max-tokens 600"]),
            ("exchange", &["aside exchange demo after_tool"]),
            ("notify", &["aside notify 'the deploy is done'"]),
            ("ask", &["aside ask 'Deploy now?' --choice yes --choice no"]),
            ("answer", &["aside answer", "aside answer q5f0c2e yes"]),
            ("instructions", &["aside instructions loop"]),
        ],
    },
    Group {
        title: "Authoring",
        commands: &[
            (
                "subscribers",
                &["aside subscribers", "aside subscribers tool_failure", "aside subscribers deploys --diff"],
            ),
            (
                "edit",
                &[
                    "aside edit tool_failure",
                    "aside edit tool_failure priority=normal window_ms=500",
                    "aside edit tool_failure --text",
                ],
            ),
            (
                "new",
                &[
                    "aside new subscriber deploys --type 'deploy.*.finished'",
                    "aside new event deploy.web.finished --from last",
                    "aside new test deploys --from 41 42",
                    "aside new fixture deploy-failed --last 3",
                ],
            ),
            (
                "check",
                &[
                    "aside check",
                    "aside check subscribers/deploys.toml",
                    "aside check --deny warnings --format github",
                    "aside check --explain unknown-field",
                ],
            ),
            (
                "test",
                &[
                    "aside test",
                    "aside test deploys --run 'two failures'",
                    "aside test --update",
                    "aside test deploys --mutate",
                    "aside test --watch",
                    "aside test --format junit",
                ],
            ),
            ("dev", &["aside dev", "aside dev deploys --reload"]),
            (
                "preview",
                &[
                    "aside preview tool_failure",
                    "aside preview tool_failure --count 1,3,40 --format all",
                    "aside preview tool_failure --watch",
                    "aside preview deploys --last 5",
                    "aside preview subscribers/deploys.toml --hostile",
                ],
            ),
            (
                "explain",
                &[
                    "aside explain tool.call.failure tool_name=grep",
                    "aside explain 4711",
                    "aside explain tool.call.failure --config ./new",
                ],
            ),
            (
                "replay",
                &[
                    "aside replay --since 24h --config ./new",
                    "aside replay --since 7d --subscriber deploys --show gone",
                    "aside replay --expect expect.toml --format junit",
                ],
            ),
            ("schema", &["aside schema subscriber", "aside schema --write"]),
            ("reference", &["aside reference", "aside reference keys", "aside reference filters truncate"]),
            ("trust", &["aside trust", "aside trust --list", "aside trust --revoke"]),
            ("reload", &["aside reload"]),
            ("tail", &["aside tail", "aside tail 'tool.**'"]),
        ],
    },
    Group {
        title: "Operating",
        commands: &[
            ("serve", &["aside serve", "aside serve --log debug"]),
            ("status", &["aside status", "aside status --verbose"]),
            ("sources", &["aside sources", "aside sources git", "aside sources --all"]),
            ("logs", &["aside logs -f"]),
            ("token", &["aside token new --scope publish", "aside token list"]),
            ("journal", &["aside journal verify"]),
            ("rebuild", &["aside rebuild"]),
            ("backup", &["aside backup state.tar"]),
            ("restore", &["aside restore state.tar"]),
            ("completions", &["aside completions bash > ~/.local/share/bash-completion/completions/aside"]),
            ("man", &["aside man ~/.local/share/man/man1"]),
        ],
    },
    Group {
        title: "Called by clients and shells",
        commands: &[
            ("hook", &["aside hook @WORD < hook.json"]),
            ("attach", &["aside attach @WORD"]),
            ("statusline", &["aside statusline @WORD < status.json"]),
            ("mcp", &["aside mcp"]),
            ("shell-init", &["eval \"$(aside shell-init bash)\""]),
        ],
    },
];

/// Width of the longest name.
const NAME_WIDTH: usize = 12;

/// Adds the groups and the examples to the commands of the program.
pub(super) fn with_groups(mut command: Command) -> Command {
    let styles = Styles::styled();
    let (begin, end) = (styles.get_header().render(), styles.get_header().render_reset());
    let mut groups = String::new();
    for Group { title, commands } in GROUPS {
        write!(groups, "\n{begin}{title}:{end}\n").ok();
        for (name, examples) in commands {
            let Some(known) = command.find_subcommand(name) else { continue };
            let about = known.get_about().map(ToString::to_string).unwrap_or_default();
            writeln!(groups, "  {name:NAME_WIDTH$} {about}").ok();
            let known = known.get_after_help().map(ToString::to_string);
            let examples: String =
                examples.iter().map(|example| format!("\n  {}", of_harness(example))).collect();
            let notes = known.map(|known| format!("\n\n{known}")).unwrap_or_default();
            let text = format!("{begin}Examples:{end}{examples}{notes}");
            command = command.mut_subcommand(name, |below| below.after_help(text));
        }
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\n{begin}Options:{end}\n{{options}}{{after-help}}"
    ))
}

/// The example for the first harness.
fn of_harness(example: &str) -> String {
    let [first, ..] = KINDS;
    example.replace("@NAME", first.caps.name).replace("@WORD", first.word)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::{CommandFactory, Parser, error::ErrorKind};

    use super::*;
    use crate::cli::{Cli, definition};

    #[test]
    fn every_command_has_a_group_and_examples() {
        let mut grouped: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, examples) in GROUPS.iter().flat_map(|group| group.commands) {
            *grouped.entry(name).or_default() += 1;
            assert!(!examples.is_empty(), "{name}");
        }
        let plain = Cli::command();
        let visible = plain.get_subcommands().filter(|below| !below.is_hide_set());
        let visible: BTreeMap<&str, usize> = visible.map(|below| (below.get_name(), 1)).collect();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn every_example_is_understood() {
        for (name, examples) in GROUPS.iter().flat_map(|group| group.commands) {
            for example in *examples {
                let example = of_harness(example);
                let words = example.trim_start_matches("eval \"$(").trim_end_matches(")\"");
                let words = shlex::split(words).expect("words");
                let until = words.iter().position(|word| word == "<" || word == ">").unwrap_or(words.len());
                let parsed = Cli::try_parse_from(&words[..until]);
                assert!(parsed.is_ok(), "{example}: {}", parsed.expect_err("refused"));
                assert_eq!(words[1], *name, "{example}");
            }
        }
    }

    /// The commands that the text of a page names, without its blocks.
    fn named(page: &str) -> Vec<String> {
        let mut is_block = false;
        let prose = page.lines().filter(|line| {
            let is_fence = line.starts_with("```");
            is_block ^= is_fence;
            !is_block && !is_fence
        });
        let prose = prose.collect::<Vec<_>>().join(" ");
        let spans = prose.split('`').skip(1).step_by(2);
        let is_command = |span: &&str| {
            let word =
                span.strip_prefix("aside ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        };
        spans.filter(is_command).map(|span| span.replace(['[', ']'], "")).collect()
    }

    #[test]
    fn every_command_in_the_pages_is_understood() {
        /// What aside prints, and not a command.
        const PRINTED: &str = "aside cancelled this call";
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let pages = std::fs::read_dir(root.join("docs")).expect("a folder");
        let pages = pages.map(|entry| entry.expect("an entry").path());
        let pages = pages.filter(|path| path.extension().is_some_and(|end| end == "md"));
        let mut count = 0;
        for path in pages.chain([root.join("README.md")]) {
            let page = std::fs::read_to_string(&path).expect("text");
            for command in named(&page).iter().filter(|command| !command.starts_with(PRINTED)) {
                count += 1;
                let words = shlex::split(command).expect("words");
                let Err(error) = definition().try_get_matches_from(&words) else { continue };
                let is_short = matches!(
                    error.kind(),
                    ErrorKind::MissingRequiredArgument
                        | ErrorKind::MissingSubcommand
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                );
                assert!(is_short, "{}: `{command}`: {error}", path.display());
            }
        }
        assert!(count > 100, "{count} commands");
    }

    #[test]
    fn no_line_below_the_options_is_wrapped() {
        let command = definition();
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let after = below.get_after_help().map(ToString::to_string).unwrap_or_default();
            let wide: Vec<&str> = after.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(wide.is_empty(), "{}: {wide:?}", below.get_name());
        }
    }

    #[test]
    fn the_help_fits_a_terminal() {
        let help = definition().render_help().to_string();
        insta::with_settings!({ snapshot_path => "../../tests/snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!("help", help);
        });
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
