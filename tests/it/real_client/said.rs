//! What the client or aside said of something that happened, in the requests after it.

use aside::tokens;
use serde_json::{Value, json};

use super::{LABEL, calls::PRINTED, texts};

/// What the tag of a block of notifications begins with, and the one behind it.
const OPENING: &str = "<notifications count=\"";
const CLOSING: &str = "\n</notifications>";

/// A conversation in which something happened.
pub(super) struct Played {
    pub(super) conversation: Vec<Vec<Value>>,
    /// The last request that was made before it.
    pub(super) happened: usize,
}

/// One thing that was said.
#[derive(Debug)]
pub(super) struct Said {
    /// Whether aside said it; else it was the client.
    pub(super) by_aside: bool,
    /// In which request after the one in which it could not be said yet.
    pub(super) request: usize,
    /// How many calls ended before that request.
    pub(super) calls: usize,
    /// Without what is around it: of aside the notifications, of the client all that is new.
    pub(super) text: String,
    /// How many tokens the rest of its text takes.
    pub(super) frame: u32,
}

impl Said {
    /// How much of the model's context it takes, as aside estimates it.
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
    /// All that is new in the requests after it happened, but for prompts, for what the calls
    /// print, and for what is said as well in `control`, where nothing happened.
    pub(super) fn said_beside(&self, control: &Self) -> Vec<Said> {
        let control = control.all_that_is_new();
        let is_of_it = |said: &Said| !control.iter().any(|other| other.text == said.text);
        self.all_that_is_new().into_iter().filter(is_of_it).collect()
    }

    fn all_that_is_new(&self) -> Vec<Said> {
        let (mut calls, mut found) = (0, Vec::new());
        let pairs = self.conversation.windows(2).skip(self.happened);
        for (request, pair) in (1..).zip(pairs) {
            // What hooks say has a role of its own with newer clients.
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

/// How many calls of a message have ended.
fn results(message: &Value) -> usize {
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks.filter(|block| block["type"] == "tool_result").count()
}

/// What aside says in a text, and what the client does beside that.
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
        // What the client puts before the text of a hook.
        let is_label = content.is_some() && !words.contains('\n') && words.ends_with(LABEL);
        (!words.is_empty() && !is_label).then(|| (false, words.to_owned()))
    });
    let own_words: Vec<_> = own_words.collect();
    own_words.into_iter().chain(content).collect()
}
