//! JSON Merge Patch (RFC 7396) on texts of JSON.
//!
//! Invariant: what the patch does not name is copied byte for byte. So no number and no text passes through a type of this
//! module: an integer beyond 2^53 and every bit of an f64 survive. Members keep their order, and new ones follow in the order of the
//! patch.
//!
//! Cost: one pass over each text, a node for each member of an object, and a sorted map for each object of the patch. The members of
//! objects in arrays are not read, because a merge patch replaces arrays whole.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::json::{after_string, depth, outside_strings};
use crate::stack::{self, MAX_DEPTH, SHALLOW};
use crate::text::shortened;

/// The reason why two texts cannot be merged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unmergeable {
    /// The target is not JSON, or it nests deeper than 128 levels.
    Target,
    /// The patch names a member twice, or by a text that is no Unicode. The text is one sentence.
    Patch(String),
}

/// Returns the JSON of `target` after `patch`, which [`json::check`](crate::json::check) has accepted.
///
/// # Errors
///
/// Returns [`Unmergeable`] if the result is in doubt.
pub(crate) fn merge(target: &str, patch: &str) -> Result<Vec<u8>, Unmergeable> {
    // The depth of the deeper text. If it is above MAX_DEPTH, the exact depth does not matter.
    let depth = depth(target.as_bytes()).max(depth(patch.as_bytes()));
    if depth > MAX_DEPTH {
        return Err(Unmergeable::Target);
    }
    if depth <= SHALLOW { merge_texts(target, patch) } else { stack::for_depth(depth, || merge_texts(target, patch)) }
}

fn merge_texts(target: &str, patch: &str) -> Result<Vec<u8>, Unmergeable> {
    let patch = Value::read(patch)
        .ok_or_else(|| Unmergeable::Patch(String::from("The name of a member of the patch is not Unicode.")))?;
    let Some(changes) = &patch.members else { return Ok(patch.text.as_bytes().to_vec()) };
    let target = Value::read(target).ok_or(Unmergeable::Target)?;
    let mut out = Vec::with_capacity(target.text.len() + patch.text.len());
    write_object(target.members.as_deref().unwrap_or_default(), changes, &mut out)?;
    Ok(out)
}

/// Appends the object of these members after the changes.
fn write_object(old: &[NamedValue<'_>], changes: &[NamedValue<'_>], out: &mut Vec<u8>) -> Result<(), Unmergeable> {
    let mut open = BTreeMap::new();
    for change in changes {
        if open.insert(change.name.as_ref(), change).is_some() {
            return Err(named_twice(&change.name));
        }
    }
    out.push(b'{');
    let start = out.len();
    for member in old {
        match open.remove(member.name.as_ref()) {
            None => {
                write_name(member, start, out);
                out.extend_from_slice(member.value.text.as_bytes());
            }
            Some(change) => write_change(change, Some(&member.value), start, out)?,
        }
    }
    for change in changes {
        if open.contains_key(change.name.as_ref()) {
            write_change(change, None, start, out)?;
        }
    }
    out.push(b'}');
    Ok(())
}

/// Appends a member of the patch, unless it is null. The members of the object begin at `start`.
fn write_change(
    change: &NamedValue<'_>,
    old: Option<&Value<'_>>,
    start: usize,
    out: &mut Vec<u8>,
) -> Result<(), Unmergeable> {
    if change.value.text == "null" {
        return Ok(());
    }
    write_name(change, start, out);
    match &change.value.members {
        Some(changes) => write_object(old.and_then(|old| old.members.as_deref()).unwrap_or_default(), changes, out),
        None => {
            out.extend_from_slice(change.value.text.as_bytes());
            Ok(())
        }
    }
}

fn write_name(member: &NamedValue<'_>, start: usize, out: &mut Vec<u8>) {
    if out.len() > start {
        out.push(b',');
    }
    out.extend_from_slice(member.quoted.as_bytes());
    out.push(b':');
}

#[cold]
fn named_twice(name: &str) -> Unmergeable {
    Unmergeable::Patch(format!("The patch names a member twice: {}.", shortened(name, 40)))
}

/// A value in a text.
struct Value<'a> {
    text: &'a str,
    /// The members, if it is an object.
    members: Option<Vec<NamedValue<'a>>>,
}

/// A member of an object.
struct NamedValue<'a> {
    name: Cow<'a, str>,
    /// The name as it is written, with its quotes.
    quoted: &'a str,
    value: Value<'a>,
}

impl<'a> Value<'a> {
    /// Reads a text of bounded depth. Returns `None` if a name is not Unicode, or if the text is not JSON. It finds only such faults
    /// of the text that it meets.
    fn read(text: &'a str) -> Option<Self> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value()?;
        reader.peek().is_none().then_some(value)
    }
}

/// A position in a text. Its methods return `None` if the text is not JSON.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Skips white space, and returns the byte after it.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.rest();
        let space = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
        self.at += space;
        rest.get(space).copied()
    }

    /// Skips white space and this byte, if it is the next one.
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn value(&mut self) -> Option<Value<'a>> {
        let first = self.peek()?;
        let start = self.at;
        let members = if first == b'{' { Some(self.members()?) } else { None };
        match first {
            b'{' => {}
            b'[' => self.skip_array()?,
            b'"' => self.skip_string(),
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
                self.at += self.rest().iter().take_while(|byte| !ends(byte)).count();
            }
        }
        let text = self.text.get(start..self.at).filter(|text| !text.is_empty())?;
        Some(Value { text, members })
    }

    fn members(&mut self) -> Option<Vec<NamedValue<'a>>> {
        self.take(b'{')?;
        let mut members = Vec::new();
        if self.take(b'}').is_some() {
            return Some(members);
        }
        loop {
            members.push(self.member()?);
            if self.take(b'}').is_some() {
                return Some(members);
            }
            self.take(b',')?;
        }
    }

    fn member(&mut self) -> Option<NamedValue<'a>> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at;
        self.skip_string();
        let quoted = self.text.get(start..self.at)?;
        let name = quoted.strip_prefix('"')?.strip_suffix('"')?;
        let name = match memchr::memchr(b'\\', name.as_bytes()) {
            None => Cow::Borrowed(name),
            Some(_) => Cow::Owned(serde_json::from_str(quoted).ok()?),
        };
        self.take(b':')?;
        Some(NamedValue { name, quoted, value: self.value()? })
    }

    fn skip_string(&mut self) {
        let rest = self.rest().get(1..).unwrap_or_default();
        self.at = self.text.len() - after_string(rest).len();
    }

    fn skip_array(&mut self) -> Option<()> {
        let mut open = 0_usize;
        for (at, byte) in outside_strings(self.rest()) {
            match byte {
                b'[' | b'{' => open += 1,
                b']' | b'}' => open = open.checked_sub(1)?,
                _ => {}
            }
            if open == 0 {
                self.at += at + 1;
                return Some(());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(target: &str, patch: &str) -> String {
        let merged = merge(target, patch).unwrap_or_else(|error| panic!("{target} and {patch}: {error:?}"));
        String::from_utf8(merged).unwrap()
    }

    /// RFC 7396, appendix A.
    #[test]
    fn the_examples_of_the_rfc() {
        for (target, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merged(target, patch), result, "{target} and {patch}");
        }
    }

    /// RFC 7396, section 3.
    #[test]
    fn the_document_of_the_rfc() {
        let target = r#"{
            "title": "Goodbye!",
            "author": { "givenName": "John", "familyName": "Doe" },
            "tags": [ "example", "sample" ],
            "content": "This will be unchanged"
        }"#;
        let patch = r#"{
            "title": "Hello!",
            "phoneNumber": "+01-123-456-7890",
            "author": { "familyName": null },
            "tags": [ "example" ]
        }"#;
        let result = r#"{"title":"Hello!","author":{"givenName":"John"},"tags":[ "example" ],"content":"This will be unchanged","phoneNumber":"+01-123-456-7890"}"#;
        assert_eq!(merged(target, patch), result);
    }

    #[test]
    fn what_is_not_named_keeps_its_bytes() {
        let others = r#""big":123456789012345678901234567890,"f":5e-324,"z":-0,"one":1.0,"text":"\u00e4\ud800 \\\" ,]}","list":[{"x":null,"x":[]}, "]"]"#;
        assert_eq!(merged(&format!(r#"{{"n":1,{others}}}"#), r#" { "n" : 2 } "#), format!(r#"{{"n":2,{others}}}"#));
        assert_eq!(merged(&format!("{{{others}}}"), "{}"), format!("{{{others}}}"));
    }

    #[test]
    fn what_is_named_has_the_bytes_of_the_patch() {
        for value in
            ["-0", "1.0e+2", "18446744073709551616", r#""\ud800""#, r#"[null,{"a":null} ]"#, "true", r#""null""#]
        {
            assert_eq!(merged(r#"{"a":7,"b":8}"#, &format!(r#"{{"a":{value}}}"#)), format!(r#"{{"a":{value},"b":8}}"#));
        }
    }

    #[test]
    fn names_are_compared_as_texts() {
        assert_eq!(merged(r#"{"a\"b":1,"ä":2}"#, r#"{"\u0061\u0022b":3,"\u00e4":null}"#), r#"{"\u0061\u0022b":3}"#);
        assert_eq!(merged(r#"{"":1}"#, r#"{"":null," ":2}"#), r#"{" ":2}"#);
    }

    /// Which of the two would count is in doubt (RFC 8259, section 4).
    #[test]
    fn a_doubtful_patch_is_refused() {
        let refused = |patch: &str| match merge(r#"{"a":{"b":1}}"#, patch) {
            Err(Unmergeable::Patch(why)) => why,
            other => panic!("{patch}: {other:?}"),
        };
        assert_eq!(refused(r#"{"a":1,"a":1}"#), "The patch names a member twice: a.");
        assert_eq!(refused(r#"{"a":{"b":2,"\u0062":3}}"#), "The patch names a member twice: b.");
        assert_eq!(refused(r#"{"\ud800":1}"#), "The name of a member of the patch is not Unicode.");
        let long = refused(&format!(r#"{{"{0}":1,"{0}":1}}"#, "x".repeat(1000)));
        assert!(long.matches('x').count() < 50, "{long}");
    }

    /// A type may write what it likes. It is an error then, and no panic.
    #[test]
    fn a_target_that_is_not_json_is_refused() {
        for target in [
            "",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1",
            "{\"a\":[}",
            "{\"a\":\"",
            "{} {}",
            "{\"a\" 1}",
            "[",
        ] {
            assert_eq!(merge(target, "{\"b\":1}"), Err(Unmergeable::Target), "{target}");
        }
    }

    /// The largest depth is merged on a small stack, and a larger one is refused.
    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize, inner: &str| "{\"a\":".repeat(depth - 1) + inner + &"}".repeat(depth - 1);
        let run = move || {
            let merged = merged(&nested(MAX_DEPTH, r#"{"b":1,"c":2}"#), &nested(MAX_DEPTH, r#"{"b":3}"#));
            assert_eq!(merged, nested(MAX_DEPTH, r#"{"b":3,"c":2}"#));
            assert_eq!(merge(&nested(MAX_DEPTH + 1, "{}"), "{}"), Err(Unmergeable::Target));
        };
        std::thread::Builder::new().stack_size(64 * 1024).spawn(run).unwrap().join().unwrap();
    }
}
