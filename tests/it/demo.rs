//! `aside demo` as a person runs it, and the picture of it at the top of the README.

use std::{env, fs, path::Path};

use crate::support::daemon::Home;

/// Path of the picture; `ASIDE_BLESS=1` draws it again.
const PICTURE: &str = "docs/demo.svg";

/// Width of a character of the font, in tenths of a pixel.
const CHAR_WIDTH: usize = 84;
const LINE_HEIGHT: usize = 16;
const MARGIN: usize = 16;

#[test]
fn demo_output_matches_the_readme_picture() {
    let home = Home::new();
    let temporary = home.path("tmp");
    fs::create_dir(&temporary).expect("a new folder");
    let output = home.command(&["demo", "--plain"]).env("TMPDIR", &temporary).output().expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(fs::read_dir(&temporary).expect("a folder").count(), 0, "something is left behind");

    let shown = String::from_utf8(output.stdout).expect("text");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let drawn = draw(&steady(&shown));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE);
    if env::var_os("ASIDE_BLESS").is_some() {
        fs::write(&path, &drawn).expect("written");
    }
    assert_eq!(fs::read_to_string(&path).expect("a picture"), drawn, "ASIDE_BLESS=1 draws it again");
}

#[test]
fn a_demo_without_its_daemon_says_why() {
    let home = Home::new();
    // Too long a path for a socket.
    let temporary = home.path(&"x".repeat(120));
    fs::create_dir(&temporary).expect("a new folder");
    let output = home.command(&["demo"]).env("TMPDIR", &temporary).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(said.contains("run the demo: its daemon did not start: ") && said.contains("socket"), "{said}");
    assert_eq!(fs::read_dir(&temporary).expect("a folder").count(), 0, "something is left behind");
}

/// The names of injections in the picture, in their order.
const IDS: [&str; 4] = ["7k2m9x", "c4tq1e", "zwqyn3", "p8d0fh"];
/// When the scenes are shown in the picture.
const TIMES: [&str; 4] = ["0.2s", "0.3s", "0.4s", "3.1s"];

/// The text without the parts that differ between runs: times, names of injections, the command's
/// duration, the estimates.
fn steady(text: &str) -> String {
    let (mut ids, mut times) = (IDS.iter(), TIMES.iter());
    let lines = text.lines().map(|line| {
        let mut line = line.to_owned();
        if line.contains("id=\"") {
            line = masked(&line, "id=\"", ids.next().expect("four injections"));
        }
        if line.starts_with(|first: char| first.is_ascii_digit()) && line.contains(" | ") {
            let rest = line.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | 's'));
            line = format!("{}{rest}", times.next().expect("four scenes"));
        }
        let line = masked(&line, "duration_ms: ", "3000");
        let line = masked(&line, "events, about ", "1900");
        let line = masked(&line, "tokens raw, about ", "200");
        masked_time(&line, "(checkout ", "14:02")
    });
    lines.map(|line| line + "\n").collect()
}

/// The line with the word after `begin` replaced.
fn masked(line: &str, begin: &str, word: &str) -> String {
    let Some(at) = line.find(begin).map(|at| at + begin.len()) else { return line.to_owned() };
    let rest = line[at..].trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    format!("{}{word}{rest}", &line[..at])
}

/// The line with the time after `begin` replaced.
fn masked_time(line: &str, begin: &str, time: &str) -> String {
    let Some(at) = line.find(begin).map(|at| at + begin.len()) else { return line.to_owned() };
    format!("{}{time}{}", &line[..at], &line[at + time.len()..])
}

/// A terminal window with this text, as a picture that needs only a monospaced font.
fn draw(text: &str) -> String {
    let columns = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = pixels(columns) + 2 * MARGIN;
    let height = text.lines().count() * LINE_HEIGHT + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <style>text {{ font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #d8dee9; white-space: pre }} \
         .normal {{ fill: #a3be8c }} .high {{ fill: #ebcb8b }} .critical {{ fill: #e0707a }} \
         .title {{ font-weight: bold }}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1f2430\"/>\n"
    );
    let names = text.lines().position(|line| line.contains("what happens")).expect("the two sides are named");
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().copied().enumerate() {
        let y = MARGIN + (index + 1) * LINE_HEIGHT - 5;
        let (left, right) = match line.find(" | ").or_else(|| line.ends_with(" |").then(|| line.len() - 2)) {
            Some(gap) => line.split_at(gap),
            None => (line, ""),
        };
        let left_class = if right.is_empty() || index == names { "title" } else { "left" };
        // The left side of a scene ends with its point and its priority.
        let named =
            |line: &&str| line.split_once(", ")?.1.split_once(']').map(|(priority, _)| priority.to_owned());
        let right_class = if index == names {
            "title".to_owned()
        } else {
            let begin =
                lines[..index].iter().rposition(|line| line.trim() == "|").map_or(names + 1, |at| at + 1);
            let scene = lines[begin..].iter().take_while(|line| line.trim() != "|");
            scene.filter(|line| line.contains("      [")).find_map(named).unwrap_or_default()
        };
        // Each side is placed separately, as fonts differ in width.
        let x = MARGIN + pixels(left.chars().count());
        for (x, class, side) in [(MARGIN, left_class, left), (x, &*right_class, right)] {
            if !side.trim().is_empty() {
                let side = escaped(side);
                svg.push_str(&format!(
                    "<text x=\"{x}\" y=\"{y}\" class=\"{class}\" xml:space=\"preserve\">{side}</text>\n"
                ));
            }
        }
    }
    svg + "</svg>\n"
}

fn pixels(chars: usize) -> usize {
    chars * CHAR_WIDTH / 10
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
