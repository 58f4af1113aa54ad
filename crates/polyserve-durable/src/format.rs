//! The format of the files: a header, then frames of records. All numbers are little-endian.
//!
//! | bytes | header |
//! |---|---|
//! | 8 | the magic number |
//! | 2 | the version of the format; every version has this header |
//! | 2 | 1 for a log, 2 for a snapshot |
//! | 4 | the salt: a random number, part of each checksum of the file |
//! | 8 | the number of the file |
//! | 4 | CRC-32 of the bytes above |
//!
//! | bytes | frame |
//! |---|---|
//! | 4 | the marker |
//! | 4 | the length of the records in bytes |
//! | 8 | the number of the frame: 1 is the first of the file |
//! | 4 | the number of records; 0 marks the end of a complete file |
//! | 4 | CRC-32 of the salt, the 20 bytes above, and the records |
//! | | the records |
//!
//! | bytes | record |
//! |---|---|
//! | 1 | 1: a put, as JSON; 2: a remove; 3: a put, in postcard's form, of what JSON cannot express |
//! | 4 | the length of the id in bytes |
//! | 4 | the length of the entity in bytes |
//! | | the id as text, then the entity |
//!
//! A log has one frame for each fsync, so a crash tears at most its last frame. Because of the salt, the bytes of a
//! client never read as a frame.
//!
//! The end of a log states that the log with the next number follows, so a log that is missing is noticed. Version 1 has no ends of
//! logs. It is read too; a missing last log is not noticed there. Files are written as version 2.

use std::ops::Range;

use crc32fast::Hasher;

/// The version of the format.
pub(crate) const VERSION: u16 = 2;

/// The version of complete logs without an end.
const WITHOUT_ENDS: u16 = 1;

/// The versions that are read.
const VERSIONS: [u16; 2] = [VERSION, WITHOUT_ENDS];

const MAGIC: [u8; 8] = *b"polysrv\x1a";
pub(crate) const MARKER: [u8; 4] = [0xF1, 0x9A, 0xC3, 0x5E];

/// The bytes of a file's header.
pub(crate) const HEADER: usize = 28;

/// The bytes of a frame before its records.
pub(crate) const FRAME_HEADER: usize = 24;

/// The max bytes of a frame's records. A longer length is damage, so a reader allocates no more.
pub(crate) const MAX_FRAME: usize = 128 << 20;

/// The max bytes of a record. A frame takes at least one record, whatever the frame already has.
pub(crate) const MAX_RECORD: usize = 64 << 20;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The writes, in the order in which they took effect.
    Log,
    /// The entities that were stored when the log of the same number began.
    Snapshot,
}

impl Kind {
    /// Returns the name of the file with this number.
    pub(crate) fn file_name(self, number: u64) -> String {
        match self {
            Self::Log => format!("log-{number:016x}"),
            Self::Snapshot => format!("snapshot-{number:016x}"),
        }
    }

    /// Reads the name of a file. Returns `None` for a file that is neither log nor snapshot.
    pub(crate) fn parse(name: &str) -> Option<(Self, u64)> {
        let (kind, number) = name.split_once('-')?;
        let kind = match kind {
            "log" => Self::Log,
            "snapshot" => Self::Snapshot,
            _ => return None,
        };
        // No file has the last number: the next one would have none.
        let number = (number.len() == 16).then(|| u64::from_str_radix(number, 16).ok())?.filter(|n| *n < u64::MAX)?;
        (kind.file_name(number) == name).then_some((kind, number))
    }
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) kind: Kind,
    pub(crate) number: u64,
    pub(crate) salt: u32,
    pub(crate) version: u16,
}

/// The reason why the first bytes of a file are no header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoFileHeader {
    Damaged(&'static str),
    /// The header is that of another version, and its checksum is right.
    Version(u16),
}

impl FileHeader {
    /// Creates the header of a new file.
    pub(crate) fn new(kind: Kind, number: u64, salt: u32) -> Self {
        Self { kind, number, salt, version: VERSION }
    }

    /// Whether the file ends with a frame without records if it is complete.
    pub(crate) fn has_end(&self) -> bool {
        self.kind == Kind::Snapshot || self.version != WITHOUT_ENDS
    }

    pub(crate) fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10..12].copy_from_slice(&if self.kind == Kind::Log { 1_u16 } else { 2 }.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..24]);
        bytes[24..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, NoFileHeader> {
        let Some(bytes) = bytes.first_chunk::<HEADER>() else { return Err(NoFileHeader::Damaged("the header is cut")) };
        if bytes[..8] != MAGIC {
            return Err(NoFileHeader::Damaged("it does not begin as a file of a store"));
        }
        if crc32fast::hash(&bytes[..24]) != word(&bytes[24..]) {
            return Err(NoFileHeader::Damaged("the checksum of the header is wrong"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if !VERSIONS.contains(&version) {
            return Err(NoFileHeader::Version(version));
        }
        let kind = match u16::from_le_bytes([bytes[10], bytes[11]]) {
            1 => Kind::Log,
            2 => Kind::Snapshot,
            _ => return Err(NoFileHeader::Damaged("the header names no kind of file")),
        };
        Ok(Self { kind, salt: word(&bytes[12..]), number: long(&bytes[16..]), version })
    }

    /// Restores a damaged header. The name of the file has the kind and the number, so only the version and the salt may be lost.
    /// A version and a salt that fit the checksum are right, if the salt differs in at most one byte from the stored one. Else the
    /// stored salt is taken.
    pub(crate) fn restore(kind: Kind, number: u64, damaged: &[u8; HEADER]) -> Self {
        let stored = word(&damaged[12..]);
        let bytes = (0..4).flat_map(|byte| (0..=0xFF).map(move |value| (8 * byte, value)));
        let salts = bytes.map(|(shift, value)| (stored & !(0xFF << shift)) | (value << shift));
        let mut headers =
            salts.flat_map(|salt| VERSIONS.map(|version| Self { version, ..Self::new(kind, number, salt) }));
        let fitting = headers.find(|header| header.encode()[24..] == damaged[24..]);
        fitting.unwrap_or(Self::new(kind, number, stored))
    }
}

/// A frame that is being filled.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    bytes: Vec<u8>,
    records: u32,
}

impl FrameBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; FRAME_HEADER], records: 0 }
    }

    /// Removes all records. Keeps at most 1 MiB of memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEADER);
        self.bytes.shrink_to(1 << 20);
        self.records = 0;
    }

    /// Adds a record. Returns its place in the frame.
    pub(crate) fn push(&mut self, record: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record);
        self.records += 1;
        start..self.bytes.len()
    }

    /// Returns the record at a place of the frame.
    pub(crate) fn record(&self, place: Range<usize>) -> Option<Record<'_>> {
        Record::read(self.bytes.get(place)?).map(|(record, _)| record)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Returns the number of records.
    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// Returns the number of bytes of the frame.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the header of the frame, and returns all bytes of the frame.
    pub(crate) fn seal(&mut self, salt: u32, number: u64) -> &[u8] {
        let length = (self.bytes.len() - FRAME_HEADER) as u32;
        self.bytes[..4].copy_from_slice(&MARKER);
        self.bytes[4..8].copy_from_slice(&length.to_le_bytes());
        self.bytes[8..16].copy_from_slice(&number.to_le_bytes());
        self.bytes[16..20].copy_from_slice(&self.records.to_le_bytes());
        let checksum = checksum(salt, &self.bytes[..20], &self.bytes[FRAME_HEADER..]);
        self.bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
        &self.bytes
    }
}

pub(crate) fn checksum(salt: u32, header: &[u8], records: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(header);
    hasher.update(records);
    hasher.finalize()
}

/// A record of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) change: Change,
    /// The id, as text.
    pub(crate) id: &'a str,
    /// The entity. Of a remove: empty.
    pub(crate) entity: &'a [u8],
}

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A put of an entity in its JSON form.
    Put = 1,
    /// A remove.
    Remove = 2,
    /// A put of an entity in postcard's form.
    PutPacked = 3,
}

impl<'a> Record<'a> {
    const HEADER: usize = 9;

    /// Appends the bytes of a record to `out`, which the caller may fill with the entity: `entity` appends it.
    pub(crate) fn write<X>(
        change: Change,
        id: &dyn std::fmt::Display,
        out: &mut Vec<u8>,
        entity: impl FnOnce(&mut Vec<u8>) -> Result<(), X>,
    ) -> Result<(), X> {
        use std::io::Write as _;
        let start = out.len();
        out.push(change as u8);
        out.extend_from_slice(&[0; 8]);
        write!(out, "{id}").expect("a vector takes all bytes");
        let entity_start = out.len();
        entity(out)?;
        let lengths = [entity_start - start - Self::HEADER, out.len() - entity_start].map(|length| length as u32);
        out[start + 1..start + 5].copy_from_slice(&lengths[0].to_le_bytes());
        out[start + 5..start + 9].copy_from_slice(&lengths[1].to_le_bytes());
        Ok(())
    }

    /// Reads the first record of `bytes`. Returns it, and its length. Returns `None` if the bytes are no record.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (header, rest) = bytes.split_first_chunk::<{ Record::HEADER }>()?;
        let change = match header[0] {
            1 => Change::Put,
            2 => Change::Remove,
            3 => Change::PutPacked,
            _ => return None,
        };
        let (id, rest) = rest.split_at_checked(word(&header[1..]) as usize)?;
        let (entity, _) = rest.split_at_checked(word(&header[5..]) as usize)?;
        let record = Self { change, id: str::from_utf8(id).ok()?, entity };
        Some((record, Self::HEADER + id.len() + entity.len()))
    }
}

pub(crate) fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().expect("a word has four bytes"))
}

pub(crate) fn long(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("a number has eight bytes"))
}
