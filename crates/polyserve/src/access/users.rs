//! The users of a server, from a file: a line for each token, or for each name of a client certificate.
//!
//! ```text
//! # name scopes credential
//! alice read,write sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
//! probe read       sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
//! shop  read       san:shop.example.org
//! ```
//!
//! The file has SHA-256 of each token, so it does not tell a token. A token must be random: a short or a chosen one can be found by
//! trying. [`token_line`] writes a line. A name may have several lines, so a new token is added before an old one is removed. Empty
//! lines, and lines that begin with `#`, say nothing.
//!
//! A line with `san:NAME` is the user of a client certificate with this subject alternative name: a DNS name, compared without regard to
//! case, or a URI such as `spiffe://example.org/shop`, compared byte by byte. The server verifies the certificate in the handshake, with
//! [`TlsConfig::with_client_ca`](polyserve_core::TlsConfig::with_client_ca). If several lines fit, the first one counts.
//!
//! Cost of a lookup of a certificate: the shared side of a lock, and comparisons with the names of all lines. Of a token: SHA-256 of the
//! token, the shared side of a lock, and a comparison with the hash of every user. It takes the same time whichever user is found, and
//! how much of a hash agrees.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use polyserve_core::ClientCertificate;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// What a user may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    /// GET, HEAD and OPTIONS.
    pub read: bool,
    /// All other methods.
    pub write: bool,
}

impl Scopes {
    /// Parses `read`, `write`, or both with a comma between them.
    ///
    /// ```
    /// use polyserve::access::Scopes;
    /// assert_eq!(Scopes::parse("read,write"), Some(Scopes { read: true, write: true }));
    /// assert_eq!((Scopes::parse("admin"), Scopes::parse("")), (None, None));
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let mut scopes = Self::default();
        for scope in text.split(',') {
            match scope {
                "read" => scopes.read = true,
                "write" => scopes.write = true,
                _ => return None,
            }
        }
        Some(scopes)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.read, self.write) {
            (true, true) => "read,write",
            (true, false) => "read",
            (false, true) => "write",
            (false, false) => "",
        })
    }
}

/// A user with one credential.
#[derive(Clone, Debug)]
struct User {
    name: Arc<str>,
    scopes: Scopes,
    credential: Credential,
}

#[derive(Clone, PartialEq, Eq)]
enum Credential {
    /// SHA-256 of a token.
    Token([u8; 32]),
    /// A name of a client certificate. A DNS name is in lower case.
    Name(Box<str>),
}

impl fmt::Debug for Credential {
    /// Without the hash: a log is read by more people than the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(_) => f.write_str("Token"),
            Self::Name(name) => f.debug_tuple("Name").field(name).finish(),
        }
    }
}

/// The users of a server. A clone shares them, so they can be [replaced](Self::replace) while the server runs.
///
/// ```
/// use polyserve::access::{Scopes, Users, token_line};
/// let line = token_line("alice", Scopes { read: true, write: false }, "6a3b...")?;
/// let users = Users::parse(&line)?;
/// assert!(users.replace("alice admin sha256:00").is_err()); // the line is refused, and alice stays
/// # Ok::<(), polyserve::access::InvalidUsers>(())
/// ```
#[derive(Clone, Debug)]
pub struct Users(Arc<RwLock<Vec<User>>>);

/// The longest name, in bytes.
const MAX_NAME: usize = 64;

impl Users {
    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// Returns an error with the number of the first line that is malformed or has the credential of another one. A text without a
    /// user is an error too.
    pub fn parse(text: &str) -> Result<Self, InvalidUsers> {
        Ok(Self(Arc::new(RwLock::new(parse(text)?))))
    }

    /// Replaces all users by those of a text. Requests that come later are judged by it.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse). Then the users stay.
    pub fn replace(&self, text: &str) -> Result<(), InvalidUsers> {
        let users = parse(text)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = users;
        Ok(())
    }

    /// Whether a user has a certificate.
    pub fn have_certificates(&self) -> bool {
        let users = self.0.read().unwrap_or_else(PoisonError::into_inner);
        users.iter().any(|user| matches!(user.credential, Credential::Name(_)))
    }

    /// The name and the scopes of the user with this token.
    pub(super) fn with_token(&self, token: &[u8]) -> Option<(Arc<str>, Scopes)> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let users = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for user in &*users {
            if let Credential::Token(known) = &user.credential
                && known.ct_eq(&hash).into()
            {
                found = Some(user); // and no return: the time tells nothing
            }
        }
        found.map(|user| (Arc::clone(&user.name), user.scopes))
    }

    /// The name and the scopes of the user with this certificate.
    pub(super) fn with_certificate(&self, certificate: &ClientCertificate) -> Option<(Arc<str>, Scopes)> {
        let users = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_known = |user: &&User| match &user.credential {
            Credential::Token(_) => false,
            Credential::Name(known) => certificate.names().any(|name| is_same_name(known, name)),
        };
        users.iter().find(is_known).map(|user| (Arc::clone(&user.name), user.scopes))
    }
}

/// Whether a certificate has the name of a line. Only DNS names are compared without regard to case.
fn is_same_name(known: &str, name: &str) -> bool {
    if is_uri(known) { known == name } else { known.eq_ignore_ascii_case(name) }
}

/// Whether a name of a certificate is a URI. A DNS name has no colon.
fn is_uri(name: &str) -> bool {
    name.contains(':')
}

/// Returns the line of a file for a user with this token.
///
/// # Errors
///
/// Returns an error if the name is not 1 to 64 letters, digits, or characters of `._@/:-`, or if there is no scope.
pub fn token_line(name: &str, scopes: Scopes, token: &str) -> Result<String, InvalidUsers> {
    let hash: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    let line = format!("{name} {scopes} sha256:{hash}");
    user(&line).map_err(InvalidUsers::of_line(1))?;
    Ok(line)
}

fn parse(text: &str) -> Result<Vec<User>, InvalidUsers> {
    let mut users: Vec<User> = Vec::new();
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let user = user(line).map_err(InvalidUsers::of_line(number))?;
        if users.iter().any(|other| other.credential == user.credential) {
            return Err(InvalidUsers::of_line(number)("another line has the same credential"));
        }
        users.push(user);
    }
    if users.is_empty() {
        return Err(InvalidUsers { line: None, why: "there is no user" });
    }
    Ok(users)
}

/// Parses a line. The error does not show it: it may have a token in place of a hash.
fn user(line: &str) -> Result<User, &'static str> {
    let mut parts = line.split_ascii_whitespace();
    let (Some(name), Some(scopes), Some(credential), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("a line is NAME SCOPES sha256:HASH or NAME SCOPES san:NAME");
    };
    if name.len() > MAX_NAME || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._@/:-".contains(&byte)) {
        return Err("a name is 1 to 64 letters, digits, or characters of ._@/:-");
    }
    let scopes = Scopes::parse(scopes).ok_or("the scopes are read, write, or read,write")?;
    let credential = match credential.split_once(':') {
        Some(("sha256", hash)) => Credential::Token(bytes(hash).ok_or("the SHA-256 is not 64 hexadecimal digits")?),
        Some(("san", "")) => return Err("the name of a certificate is empty"),
        Some(("san", name)) if is_uri(name) => Credential::Name(name.into()),
        Some(("san", name)) => Credential::Name(name.to_ascii_lowercase().into()),
        _ => return Err("a credential is sha256:HASH or san:NAME"),
    };
    Ok(User { name: name.into(), scopes, credential })
}

/// The bytes of 64 hexadecimal digits.
fn bytes(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// The error of a file of users. It names the line, and not its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidUsers {
    line: Option<usize>,
    why: &'static str,
}

impl InvalidUsers {
    fn of_line(line: usize) -> impl Fn(&'static str) -> Self {
        move |why| Self { line: Some(line), why }
    }
}

impl fmt::Display for InvalidUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.why),
            None => f.write_str(self.why),
        }
    }
}

impl Error for InvalidUsers {}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Scopes = Scopes { read: true, write: true };

    #[test]
    fn a_token_finds_its_user() {
        let lines = ["a", "b", "c"].map(|token| token_line(&format!("of-{token}"), BOTH, token).unwrap());
        let users = Users::parse(&format!("# users\n\n{}\r\n", lines.join("\n"))).unwrap();
        for token in ["a", "b", "c"] {
            let (name, scopes) = users.with_token(token.as_bytes()).expect("it is there");
            assert_eq!((&*name, scopes), (&*format!("of-{token}"), BOTH));
        }
        assert!(users.with_token(b"d").is_none() && users.with_token(b"").is_none());
        // A known hash: printf abc | sha256sum
        let known = "alice read sha256:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";
        users.replace(known).unwrap();
        assert!(users.with_token(b"abc").is_some() && users.with_token(b"a").is_none());
    }

    #[test]
    fn a_certificate_finds_its_user() {
        let users = Users::parse(
            "shop read san:Shop.example.org\nboth read,write san:spiffe://example.org/Both\nlate write san:*.example.org",
        )
        .unwrap();
        let found = |names: &[&str]| {
            let user = users.with_certificate(&ClientCertificate::new(names.iter().copied()));
            user.map(|(name, scopes)| format!("{name} {scopes}"))
        };
        assert_eq!(found(&["shop.EXAMPLE.org"]).as_deref(), Some("shop read"));
        assert_eq!(found(&["x.org", "spiffe://example.org/Both"]).as_deref(), Some("both read,write"));
        assert_eq!(found(&["*.example.org"]).as_deref(), Some("late write"));
        // The first line counts, whatever the order of the names.
        assert_eq!(found(&["spiffe://example.org/Both", "shop.example.org"]).as_deref(), Some("shop read"));
        for names in
            [&[][..], &["a.example.org"], &["shop.example.org."], &["spiffe://example.org/both"], &["example.org"]]
        {
            assert_eq!(found(names), None, "{names:?}");
        }
        assert!(users.with_token(b"san:shop.example.org").is_none());
    }

    #[test]
    fn a_malformed_file_changes_nothing() {
        let good = token_line("alice", BOTH, "secret-token").unwrap();
        let users = Users::parse(&good).unwrap();
        let hash = good.rsplit(' ').next().unwrap();
        for (text, why) in [
            (String::new(), "there is no user"),
            ("# nothing".into(), "there is no user"),
            (format!("{good}\nbob read"), "line 2: a line is NAME"),
            (format!("{good} more"), "line 1: a line is NAME"),
            (format!("b\u{f6}b read {hash}"), "line 1: a name is"),
            (format!("{} read {hash}", "a".repeat(65)), "line 1: a name is"),
            (format!("bob admin {hash}"), "line 1: the scopes are"),
            (format!("bob read, {hash}"), "line 1: the scopes are"),
            ("bob read secret-token".into(), "line 1: a credential is"),
            (format!("bob read {hash}0"), "line 1: the SHA-256"),
            ("bob read sha256:+1".into(), "line 1: the SHA-256"),
            (format!("{good}\nbob read {hash}"), "line 2: another line"),
            ("bob read san:".into(), "line 1: the name of a certificate"),
            ("bob read san:a.b\nalice read san:A.b".into(), "line 2: another line"),
        ] {
            let error = users.replace(&text).expect_err(&text).to_string();
            assert!(error.starts_with(why) && !error.contains("secret-token"), "{text}: {error}");
            assert!(users.with_token(b"secret-token").is_some(), "{text}");
        }
        assert!(token_line("a b", BOTH, "x").is_err() && token_line("a", Scopes::default(), "x").is_err());
    }
}
