//! Whole files in memory, up to a limit: a device such as `/dev/zero` has no end.
//!
//! Cost: the file is read once, and at most one byte behind the limit.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The max size of a file of settings in bytes.
const MAX_SETTINGS: u64 = 16 << 20;

/// The max size of a file with the content of requests and answers, or with results, in bytes: 256 MiB.
pub const MAX_CONTENT: u64 = 256 << 20;

/// The bytes that some editors write at the beginning of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns why a text in PEM form has no private key that can be read, after the name of the key. `error` is that of the reader, which
/// does not know encrypted keys: those of PKCS #8, and the older form with a header.
///
/// ```
/// use polyserve_core::files::unreadable_key;
///
/// let why = unreadable_key(b"-----BEGIN ENCRYPTED PRIVATE KEY-----", &"no items found");
/// assert!(why.starts_with("is encrypted, and a password cannot be given"));
/// let why = unreadable_key(b"-----BEGIN CERTIFICATE-----", &"no items found");
/// assert_eq!(why, "has no private key in PEM form: no items found");
/// ```
pub fn unreadable_key(pem: &[u8], error: &dyn Display) -> String {
    let has = |text: &str| pem.windows(text.len()).any(|part| part == text.as_bytes());
    if has("-----BEGIN ENCRYPTED PRIVATE KEY-----") || has("Proc-Type: 4,ENCRYPTED") {
        return "is encrypted, and a password cannot be given: decrypt it with `openssl pkey -in KEY -out NEW`, and let only the user of \
                this program read the new file"
            .into();
    }
    format!("has no private key in PEM form: {error}")
}

/// Returns the content of a file of settings, such as a configuration, a definition or a certificate, of at most 16 MiB. A byte order mark
/// at its beginning is left out: a reader of PEM would skip the first certificate with it, and without an error.
///
/// # Errors
///
/// Returns the errors of [`read_bounded`].
pub fn read_settings(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut content = read_bounded(path, MAX_SETTINGS)?;
    if content.starts_with(BYTE_ORDER_MARK) {
        content.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(content)
}

/// Returns the text of a file of settings, as [`read_settings`] does.
///
/// # Errors
///
/// Returns the errors of [`read_text`].
pub fn read_settings_text(path: impl AsRef<Path>) -> io::Result<String> {
    text_of(read_settings(path)?)
}

/// Returns the content of a file of at most `limit` bytes.
///
/// # Errors
///
/// Returns an error if the file cannot be read, and one of the kind [`FileTooLarge`](ErrorKind::FileTooLarge) if it has more bytes. Its
/// text has the limit, and not the path.
pub fn read_bounded(path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
    read_all(File::open(path)?, limit)
}

/// Returns the text of a file of at most `limit` bytes.
///
/// # Errors
///
/// Returns the errors of [`read_bounded`], and one of the kind [`InvalidData`](ErrorKind::InvalidData) if the content is not UTF-8.
pub fn read_text(path: impl AsRef<Path>, limit: u64) -> io::Result<String> {
    text_of(read_bounded(path, limit)?)
}

fn text_of(content: Vec<u8>) -> io::Result<String> {
    String::from_utf8(content).map_err(|_| io::Error::new(ErrorKind::InvalidData, "the content is not UTF-8 text"))
}

/// Returns all bytes of `source`, which are at most `limit`.
///
/// # Errors
///
/// Returns the errors of [`read_bounded`].
pub fn read_all(source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    source.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        let size = if limit >= 1 << 20 { format!("{} MiB", limit >> 20) } else { format!("{limit} bytes") };
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is larger than the limit of {size}")));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_up_to_its_limit() {
        assert_eq!(read_all(&b"abc"[..], 3).unwrap(), b"abc");
        let error = read_all(&b"abcd"[..], 3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it is larger than the limit of 3 bytes");
    }

    /// Regression test: a file without an end filled the memory.
    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = read_text("/dev/zero", 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than the limit of 1 MiB");
    }
}
