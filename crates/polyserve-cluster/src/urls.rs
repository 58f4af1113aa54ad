//! Lists of URLs.

/// Splits a list of URLs at each comma before a scheme, as in `redis://:a,b@one,redis://:a,b@two`: a password may have
/// commas. White space around a URL is removed.
pub(crate) fn split(urls: &str) -> Vec<&str> {
    let is_scheme = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let begins_url = |text: &str| text.trim_start().split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme));
    let (mut list, mut start) = (Vec::new(), 0);
    for (comma, _) in urls.match_indices(',') {
        if begins_url(&urls[comma + 1..]) {
            list.push(urls[start..comma].trim());
            start = comma + 1;
        }
    }
    list.push(urls[start..].trim());
    list
}

#[cfg(test)]
mod tests {
    use super::split;

    /// Regression test: a password with a comma was split.
    #[test]
    fn a_comma_before_a_scheme_separates() {
        for (urls, expected) in [
            ("", &[""][..]),
            ("redis://a", &["redis://a"]),
            ("redis://a, redis+x://b ,http://c", &["redis://a", "redis+x://b", "http://c"]),
            ("redis://:x,y@a,redis://:x,@b", &["redis://:x,y@a", "redis://:x,@b"]),
            // A list with a mistake is one URL, which is rejected with its comma.
            ("redis://a,b:1", &["redis://a,b:1"]),
            ("redis://a,", &["redis://a,"]),
            (",redis://a", &["", "redis://a"]),
        ] {
            assert_eq!(split(urls), expected, "{urls}");
        }
    }
}
