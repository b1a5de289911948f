//! JUnit XML: the failed test cases.
//!
//! It has no standard. Source: the output of pytest, Surefire, gotestsum, nextest, vitest and
//! jest-junit. They agree on `testcase` with `classname` and `name`, and on its children `failure`
//! and `error`. A document type is refused, so no entity can expand.

use roxmltree::{Document, Node, ParsingOptions};

use crate::problem::{Level, Problem};

/// Most elements and texts of a document.
const NODES_MAX: u32 = 1_000_000;

pub(super) fn read(text: &str) -> Result<Vec<Problem>, roxmltree::Error> {
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)?;
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
    Ok(cases.filter_map(|case| problem(&case)).collect())
}

fn problem(case: &Node<'_, '_>) -> Option<Problem> {
    let is_wrong = |node: &Node<'_, '_>| node.has_tag_name("failure") || node.has_tag_name("error");
    let wrong = case.children().find(is_wrong)?;
    let attribute = |name: &str| case.attribute(name).map(str::trim).filter(|text| !text.is_empty());
    let number = |name: &str| attribute(name).and_then(|text| text.parse().ok());
    let name = attribute("name").unwrap_or("test");
    let (file, class) = (attribute("file"), attribute("classname"));
    let code = match (file, class) {
        (None, Some(class)) => format!("{class}::{name}"),
        (Some(_), _) | (None, None) => name.to_owned(),
    };
    let text = wrong.text().and_then(|text| text.lines().map(str::trim).find(|line| !line.is_empty()));
    let message = wrong.attribute("message").map(str::trim).filter(|text| !text.is_empty());
    let message = message.or(text).or(wrong.attribute("type")).unwrap_or("failed");
    Some(Problem {
        file: file.map(str::to_owned),
        line: number("line"),
        column: None,
        severity: Level::Error,
        code: Some(code),
        message: message.to_owned(),
    })
}
