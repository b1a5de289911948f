//! Results in the form of JUnit, as CI services read them.

use std::fmt::Write as _;

use quick_xml::escape::escape;

/// One result.
pub(super) struct Case<'t> {
    /// The subscriber.
    pub(super) subscriber: &'t str,
    pub(super) name: &'t str,
    /// The file and the line of what was checked, if there is one.
    pub(super) place: Option<(&'t str, usize)>,
    /// Why it failed: one sentence, and the whole text.
    pub(super) failure: Option<(String, String)>,
}

/// The document; adjacent results of one subscriber are one suite.
pub(super) fn document(cases: &[Case<'_>]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"aside\">\n");
    for suite in cases.chunk_by(|a, b| a.subscriber == b.subscriber) {
        let Some(first) = suite.first() else { continue };
        let failed = suite.iter().filter(|case| case.failure.is_some()).count();
        let name = escape(first.subscriber);
        let _ =
            writeln!(text, "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\">", suite.len());
        for case in suite {
            let own = escape(case.name);
            let place = case.place.map(|(file, line)| format!(" file=\"{}\" line=\"{line}\"", escape(file)));
            let place = place.unwrap_or_default();
            let open = format!("    <testcase classname=\"{name}\" name=\"{own}\"{place}");
            let _ = match &case.failure {
                None => writeln!(text, "{open}/>"),
                Some((message, explained)) => {
                    let (message, explained) = (escape(message), escape(explained));
                    writeln!(
                        text,
                        "{open}>\n      <failure message=\"{message}\">{explained}</failure>\n    </testcase>"
                    )
                }
            };
        }
        text.push_str("  </testsuite>\n");
    }
    text + "</testsuites>\n"
}
