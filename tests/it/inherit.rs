//! Mistakes in files with `inherit = true`: their places, also where an inherited key becomes wrong.

use aside::config::report::Level;

use crate::support::rules::with_user;

#[test]
fn mistakes_of_inheriting_files_are_placed() {
    for (text, place, part) in [
        (
            "[subscriber]\nid = \"tool_failur\"\ninherit = true\n",
            "user/subscribers/x.toml:3:11",
            "no earlier layer has a subscriber `tool_failur` to inherit from",
        ),
        (
            "[subscriber]\nid = \"tool_failur\"\ninherit = true\n",
            "user/subscribers/x.toml:3:11",
            "did you mean `tool_failure`?",
        ),
        ("[subscriber]\nid = \"tool_failure\"\ninherit = 1\n", "x.toml:3:11", "must be true or false"),
        (
            "[subscriber]\nid = \"budget_exceeded\"\ninherit = true\n[output]\npriority = \"high\"\n",
            "x.toml:5:12",
            "`immediate` is for critical notifications",
        ),
        (
            "[subscriber]\nid = \"tool_failure\"\ninherit = true\n[output]\npriorty = \"high\"\n",
            "x.toml:5:1",
            "did you mean `priority`?",
        ),
        (
            "[subscriber]\nid = \"tool_failure\"\ninherit = true\nenabled = false\n",
            "x.toml:4:11",
            "a core subscriber cannot be switched off",
        ),
        (
            "[subscriber]\nid = \"tool_failure\"\ninherit = true\n[output]\nescalate_at = \"never\"\n",
            "x.toml:5:15",
            "a critical event of a core subscriber is always critical",
        ),
        (
            "[subscriber]\nid = \"reminder\"\ninherit = true\n[output]\none = \"a: 1\"\ntemplate = \"generic\"\n",
            "x.toml:6:12",
            "`template` and `one` both define the text",
        ),
    ] {
        let compiled = with_user(&[("subscribers/x.toml", text)]);
        let report = compiled.report.to_string();
        assert!(compiled.report.error_count() == 1 && report.contains(part), "{text}: {report}");
        assert!(report.contains(place), "{text}: {report}");
    }
}

#[test]
fn inherited_keys_are_placed_where_they_become_wrong() {
    for (id, text, level, place, parts) in [
        (
            "tool_failure",
            "[output]\npriority = \"low\"\n",
            Level::Warning,
            "5:12",
            ["a low priority waits for turn_end", "`output.inject_at` is inherited from shipped:"],
        ),
        (
            "budget_exceeded",
            "[output]\nmax_tokens = 100\npriority = \"high\"\n",
            Level::Error,
            "6:12",
            ["`immediate` is for critical notifications", "or choose another point; `output.inject_at` is"],
        ),
        (
            "reminder",
            "[output]\naudience = \"user\"\n",
            Level::Warning,
            "5:12",
            ["`activation` applies to agents", "`output.activation` is inherited from"],
        ),
        (
            "closed_port",
            "[limits]\nresolved_by = []\n",
            Level::Error,
            "5:15",
            [
                "`equal` needs `resolved_by`",
                "`limits.equal` is inherited from shipped:subscribers/closed_port",
            ],
        ),
        (
            "file_change",
            "[batching]\nwindow_ms = 0\n",
            Level::Error,
            "5:13",
            ["`debounce` needs a `window_ms` of at least 1", "`batching.mode` is inherited from"],
        ),
    ] {
        let text = format!("[subscriber]\nid = \"{id}\"\ninherit = true\n{text}");
        let compiled = with_user(&[("subscribers/x.toml", &text)]);
        let report = &compiled.report;
        let of_level: Vec<_> = report.diagnostics().iter().filter(|one| one.level == level).collect();
        let wrong = of_level.iter().find(|one| one.message.starts_with(parts[0]));
        let wrong = wrong.unwrap_or_else(|| panic!("{text}: {report}"));
        assert_eq!(wrong.place.to_string(), format!("user/subscribers/x.toml:{place}"), "{report}");
        assert!(wrong.note.as_ref().is_some_and(|note| note.contains(parts[1])), "{report}");
        assert!(!report.diagnostics().iter().any(|one| one.place.file.starts_with("shipped:")), "{report}");
        let left_out: Vec<_> = compiled.left_out.iter().map(|path| &**path).collect();
        let expected = ["user/subscribers/x.toml"];
        assert_eq!(left_out, &expected[..usize::from(level == Level::Error)], "{text}");
    }
}

#[test]
fn inherited_keys_can_be_switched_off() {
    for (id, text) in [
        ("file_change", "[batching]\nmode = \"window\"\n"),
        ("ide_diagnostics", "[batching]\nmode = \"window\"\n"),
        ("closed_port", "[limits]\nresolved_by = []\nequal = \"\"\n"),
        ("alert", "[limits]\nsupersede_key = \"\"\nresolved_by = []\nrevision = \"\"\norder_by = \"\"\n"),
    ] {
        let text = format!("[subscriber]\nid = \"{id}\"\ninherit = true\n{text}");
        let report = with_user(&[("subscribers/x.toml", &text)]).report.to_string();
        assert_eq!(report, "", "{text}");
    }
    let own = "[subscriber]\nid = \"own\"\n[events]\ntypes = [\"a.b\"]\n[batching]\nmode = \"window\"\n";
    assert_eq!(with_user(&[("subscribers/own.toml", own)]).report.to_string(), "");
    let wrong = format!("{own}max_wait_ms = 5000\n");
    let report = with_user(&[("subscribers/own.toml", &wrong)]).report.to_string();
    assert!(report.contains("own.toml:7:15") && report.contains("`max_wait_ms` is for"), "{report}");
}
