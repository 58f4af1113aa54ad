//! The frames of a file, read one after the other, and searched for behind damage.
//!
//! Cost: a read of 1 MiB, or of a larger frame, at a time; one pass of CRC-32.

use std::io;

use crate::disk::DiskFile;
use crate::format::{
    FRAME_HEADER, FileHeader, HEADER, Kind, MARKER, MAX_FRAME, NoFileHeader, Record, checksum, long, word,
};

/// A frame of a file.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    /// The offset of its first byte.
    pub(crate) offset: u64,
    pub(crate) records: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the bytes of a record with this offset in the file.
    pub(crate) fn bytes(&self, offset: u64, length: usize) -> &'a [u8] {
        let start = (offset - self.offset) as usize - FRAME_HEADER;
        &self.payload[start..start + length]
    }

    /// Calls `on_record` with every record and its offset in the file.
    ///
    /// # Errors
    ///
    /// Returns `None` if the bytes are not as many records as the frame states, else the error of `on_record`.
    pub(crate) fn for_each<X>(
        &self,
        mut on_record: impl FnMut(Record<'a>, u64, usize) -> Result<(), X>,
    ) -> Result<(), Option<X>> {
        let mut position = 0;
        for _ in 0..self.records {
            let (record, length) = Record::read(&self.payload[position..]).ok_or(None)?;
            on_record(record, self.offset + (FRAME_HEADER + position) as u64, length).map_err(Some)?;
            position += length;
        }
        if position == self.payload.len() { Ok(()) } else { Err(None) }
    }
}

/// What stands at a place of a file.
#[derive(Debug)]
pub(crate) enum Next<'a> {
    /// A valid frame.
    Frame(Frame<'a>),
    /// The end of the file.
    End,
    /// No valid frame.
    Invalid(&'static str),
}

/// Reads the frames of a file, one after the other.
#[derive(Debug)]
pub(crate) struct Reader<'f> {
    file: &'f dyn DiskFile,
    pub(crate) header: FileHeader,
    len: u64,
    /// The offset of the next frame.
    offset: u64,
    /// The number of the next frame.
    number: u64,
    /// Bytes of the file from `start` on.
    buffer: Vec<u8>,
    start: u64,
}

/// The bytes that a reader reads at once.
const CHUNK: usize = 1 << 20;

impl<'f> Reader<'f> {
    fn new(file: &'f dyn DiskFile) -> io::Result<Self> {
        Ok(Self {
            file,
            header: FileHeader::new(Kind::Log, 0, 0),
            len: file.len()?,
            offset: HEADER as u64,
            number: 1,
            buffer: Vec::new(),
            start: 0,
        })
    }

    /// Reads the header of a file.
    pub(crate) fn open(file: &'f dyn DiskFile) -> io::Result<Result<Self, NoFileHeader>> {
        let mut reader = Self::new(file)?;
        let bytes = reader.bytes(0, HEADER)?;
        match FileHeader::decode(bytes) {
            Ok(header) => {
                reader.header = header;
                Ok(Ok(reader))
            }
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Reads a file with a damaged header. Returns `None` if the header is cut, so that there is no frame.
    pub(crate) fn open_damaged(file: &'f dyn DiskFile, kind: Kind, number: u64) -> io::Result<Option<Self>> {
        let mut reader = Self::new(file)?;
        let damaged = reader.bytes(0, HEADER)?.first_chunk::<HEADER>().copied();
        Ok(damaged.map(|damaged| {
            reader.header = FileHeader::restore(kind, number, &damaged);
            reader
        }))
    }

    /// Returns the offset behind the last valid frame.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length of the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of the next frame.
    pub(crate) fn next_number(&self) -> u64 {
        self.number
    }

    /// Returns up to `length` bytes at `offset`; fewer at the end of the file only.
    fn bytes(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let length = length.min(usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX));
        let is_buffered = offset >= self.start && offset + length as u64 <= self.start + self.buffer.len() as u64;
        if !is_buffered {
            let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
            self.buffer.clear();
            self.buffer.resize(length.max(CHUNK).min(left), 0);
            self.start = offset;
            let mut filled = 0;
            while filled < self.buffer.len() {
                match self.file.read_at(&mut self.buffer[filled..], offset + filled as u64)? {
                    0 => break, // the file was cut while it was read
                    read => filled += read,
                }
            }
            self.buffer.truncate(filled);
        }
        let from = (offset - self.start) as usize;
        let to = (from + length).min(self.buffer.len());
        Ok(&self.buffer[from..to])
    }

    /// Returns the next frame, which has the next number. After [`Next::Invalid`], the reader stays at that place.
    pub(crate) fn next(&mut self) -> io::Result<Next<'_>> {
        let (offset, expected) = (self.offset, self.number);
        if offset >= self.len {
            return Ok(Next::End);
        }
        let length = match self.probe(offset)? {
            Ok((number, _)) if number != expected => return Ok(Next::Invalid("the frame has another number")),
            Ok((_, length)) => length,
            Err(reason) => return Ok(Next::Invalid(reason)),
        };
        self.offset = offset + length as u64;
        self.number = expected + 1;
        let bytes = self.bytes(offset, length)?;
        let (header, payload) = bytes.split_at(FRAME_HEADER);
        Ok(Next::Frame(Frame { offset, records: word(&header[16..]), payload }))
    }

    /// Looks at the bytes at `offset`. Returns the number and the length of the valid frame there.
    fn probe(&mut self, offset: u64) -> io::Result<Result<(u64, usize), &'static str>> {
        let salt = self.header.salt;
        let header = self.bytes(offset, FRAME_HEADER)?;
        let Some(header) = header.first_chunk::<FRAME_HEADER>().copied() else { return Ok(Err("the frame is cut")) };
        if header[..4] != MARKER {
            return Ok(Err("there is no frame"));
        }
        let length = word(&header[4..]) as usize;
        if length > MAX_FRAME {
            return Ok(Err("the length of the frame is wrong"));
        }
        let bytes = self.bytes(offset, FRAME_HEADER + length)?;
        if bytes.len() < FRAME_HEADER + length {
            return Ok(Err("the frame is cut"));
        }
        if is_checked() && checksum(salt, &header[..20], &bytes[FRAME_HEADER..]) != word(&header[20..]) {
            return Ok(Err("the checksum is wrong"));
        }
        Ok(Ok((long(&header[8..]), FRAME_HEADER + length)))
    }

    /// Searches from the present place on for a valid frame with the next number or a later one. Returns its offset.
    pub(crate) fn find_later(&mut self) -> io::Result<Option<u64>> {
        let mut offset = self.offset;
        while offset < self.len {
            let window = self.bytes(offset, CHUNK)?;
            let found = window.windows(MARKER.len()).position(|bytes| bytes == MARKER);
            let Some(found) = found else {
                offset += (window.len().saturating_sub(MARKER.len() - 1)).max(1) as u64;
                continue;
            };
            offset += found as u64;
            if matches!(self.probe(offset)?, Ok((number, _)) if number >= self.number) {
                return Ok(Some(offset));
            }
            offset += 1;
        }
        Ok(None)
    }

    /// Whether there is a valid frame at the present place or behind it.
    pub(crate) fn has_frame(&mut self) -> io::Result<bool> {
        Ok(self.find_later()?.is_some())
    }

    /// Goes on at the valid frame at `offset`. Returns the number of lost frames before it.
    pub(crate) fn skip_to(&mut self, offset: u64) -> io::Result<u64> {
        let number = self.probe(offset)?.map_or(self.number, |(number, _)| number);
        let lost = number - self.number;
        (self.offset, self.number) = (offset, number);
        Ok(lost)
    }
}

/// Whether checksums are looked at: always, but in the test that shows what happens if they are not.
fn is_checked() -> bool {
    #[cfg(test)]
    return !crate::mistakes::is_made(crate::mistakes::Mistake::ChecksumIgnored);
    #[cfg(not(test))]
    true
}
