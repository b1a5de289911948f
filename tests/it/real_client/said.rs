//! Messages of the client or of aside about an event, in the requests after it.

use serde_json::{Value, json};
use toon::tokens;

use super::{LABEL, calls::PRINTED, texts};

/// The beginning of the opening tag of a block of notifications, and the closing tag.
const OPENING: &str = "<notifications count=\"";
const CLOSING: &str = "\n</notifications>";

/// A conversation with an event.
pub(super) struct Played {
    pub(super) conversation: Vec<Vec<Value>>,
    /// The number of the last request before the event.
    pub(super) happened: usize,
}

/// One message.
#[derive(Debug)]
pub(super) struct Said {
    /// Whether aside wrote it; otherwise the client did.
    pub(super) by_aside: bool,
    /// The request that contains it, counted from the last one before the event.
    pub(super) request: usize,
    /// Calls that ended before that request.
    pub(super) calls: usize,
    /// The text without its frame: the notifications of aside, or all that is new of the client.
    pub(super) text: String,
    /// Tokens of the frame.
    pub(super) frame: u32,
}

impl Said {
    /// The tokens of its text, as aside estimates them.
    pub(super) fn tokens(&self) -> u32 {
        tokens::estimate(&self.text).0
    }

    pub(super) fn to_json(&self) -> Value {
        let Self { by_aside, calls, text, frame, .. } = self;
        let by = if *by_aside { "aside" } else { "the client" };
        json!({ "by": by, "calls": calls, "tokens": self.tokens(), "frame": frame, "text": text })
    }
}

impl Played {
    /// All new texts in the requests after the event, without prompts, the output of the calls, and
    /// texts that are also in `control`, where no event happened.
    pub(super) fn said_beside(&self, control: &Self) -> Vec<Said> {
        let control = control.all_that_is_new();
        let is_of_it = |said: &Said| !control.iter().any(|other| other.text == said.text);
        self.all_that_is_new().into_iter().filter(is_of_it).collect()
    }

    fn all_that_is_new(&self) -> Vec<Said> {
        let (mut calls, mut found) = (0, Vec::new());
        let pairs = self.conversation.windows(2).skip(self.happened);
        for (request, pair) in (1..).zip(pairs) {
            // With newer clients the texts of hooks have a role of their own.
            let messages = pair[1].iter().skip(pair[0].len());
            let messages: Vec<&Value> = messages.filter(|message| message["role"] != "assistant").collect();
            calls += messages.iter().map(|message| results(message)).sum::<usize>();
            let new = messages.into_iter().flat_map(texts).filter(|text| !PRINTED.contains(&text.trim()));
            found.extend(new.flat_map(|whole| {
                let parts = parts(whole);
                let inside: u32 = parts.iter().map(|(_, text)| tokens::estimate(text).0).sum();
                let frame = tokens::estimate(whole).0.saturating_sub(inside);
                let said = |(by_aside, text)| Said { by_aside, request, calls, text, frame };
                parts.into_iter().map(said).collect::<Vec<_>>()
            }));
        }
        found
    }
}

/// The number of ended calls in a message.
fn results(message: &Value) -> usize {
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks.filter(|block| block["type"] == "tool_result").count()
}

/// The parts of a text that aside wrote, and those of the client.
fn parts(text: &str) -> Vec<(bool, String)> {
    let block = text.split_once(OPENING).and_then(|(before, rest)| {
        let (block, after) = rest.split_once(CLOSING)?;
        let (_, content) = block.split_once(">\n")?;
        Some((before, content, after))
    });
    let (before, content, after) = block.map_or((text, None, ""), |(before, content, after)| {
        (before, Some((true, content.to_owned())), after)
    });
    let own_words = [before, after].into_iter().filter_map(|words| {
        let words = words.replace("<system-reminder>", "").replace("</system-reminder>", "");
        let words = words.trim();
        // The client's label before the text of a hook.
        let is_label = content.is_some() && !words.contains('\n') && words.ends_with(LABEL);
        (!words.is_empty() && !is_label).then(|| (false, words.to_owned()))
    });
    let own_words: Vec<_> = own_words.collect();
    own_words.into_iter().chain(content).collect()
}
