//! The log that is being written: one frame for each fsync.
//!
//! Invariant: every frame of a log is synced before the next one is written. The end of a log is synced before the next log has a
//! frame. So a crash tears at most the frame behind which no other was written.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::mem;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, NamedFile};
use crate::format::{FileHeader, FrameBuffer, HEADER, Kind};
use crate::mistakes::unless;

/// The end of the name of a snapshot that is not complete. The next start removes it.
pub(crate) const INCOMPLETE: &str = ".tmp";

/// Returns a number that clients cannot guess. std takes the keys of its hashes from the system's random numbers.
fn salt() -> u32 {
    (RandomState::new().build_hasher().finish() >> 32) as u32
}

/// The error of an append.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// Nothing was appended, and the log is as it was before.
    Undone(io::Error),
    /// Nothing was appended: another program has removed, replaced or changed the log. It must not be used any more.
    Lost(String),
    /// It is unknown what is on the disk. The log must not be used any more.
    Unknown(io::Error),
}

/// An open log.
#[derive(Debug)]
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    /// Its length is the offset behind the last frame.
    named: NamedFile,
    header: FileHeader,
    next_frame: u64,
}

impl Log {
    /// Creates the log with this number. Its name and its header are durable before this returns.
    pub(crate) fn create(disk: &Arc<dyn Disk>, number: u64) -> io::Result<Self> {
        let header = FileHeader::new(Kind::Log, number, salt());
        let name = Kind::Log.file_name(number);
        let mut file = disk.create(&name)?;
        file.write_all_at(&header.encode(), 0)?;
        unless!(NoHeaderSync, file.sync()?);
        unless!(NoLogNameSync, disk.sync()?);
        let named = NamedFile { name, id: file.id()?, len: HEADER as u64 };
        Ok(Self { disk: Arc::clone(disk), file, named, header, next_frame: 1 })
    }

    /// Goes on with a log that was read to its end. Cuts what stands behind its last frame.
    pub(crate) fn reopen(
        disk: &Arc<dyn Disk>,
        mut file: Box<dyn DiskFile>,
        header: FileHeader,
        (end, next_frame): (u64, u64),
    ) -> io::Result<Self> {
        if file.len()? > end {
            file.set_len(end)?;
            file.sync()?;
        }
        unless!(NoNameSyncAtOpen, disk.sync()?);
        let named = NamedFile { name: Kind::Log.file_name(header.number), id: file.id()?, len: end };
        Ok(Self { disk: Arc::clone(disk), file, named, header, next_frame })
    }

    /// Returns the number of the log.
    pub(crate) fn number(&self) -> u64 {
        self.header.number
    }

    /// Returns the file that the next start has to find.
    pub(crate) fn named(&self) -> &NamedFile {
        &self.named
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.named.len
    }

    /// Writes a frame and syncs it.
    pub(crate) fn append(&mut self, frame: &mut FrameBuffer) -> Result<(), AppendError> {
        let written = self.write(frame)?;
        unless!(NoFrameSync, self.file.sync().map_err(AppendError::Unknown)?);
        self.named.len += written;
        self.next_frame += 1;
        Ok(())
    }

    /// Checks that the next start finds the log with all its frames. A frame behind a log that was cut would be read by no start.
    fn verify(&self) -> Result<(), AppendError> {
        self.disk.verify_file(&self.named).map_err(AppendError::Lost)
    }

    /// Writes a frame behind the last one. If that fails, it is cut off. Returns its length.
    fn write(&mut self, frame: &mut FrameBuffer) -> Result<u64, AppendError> {
        let bytes = frame.seal(self.header.salt, self.next_frame);
        self.verify()?;
        match self.file.write_all_at(bytes, self.len()) {
            Ok(()) => Ok(bytes.len() as u64),
            Err(error) => match self.cut() {
                Ok(()) => Err(AppendError::Undone(error)),
                Err(cut) => {
                    let reason = format!("{error}; what it has written cannot be cut off: {cut}");
                    Err(AppendError::Unknown(io::Error::new(error.kind(), reason)))
                }
            },
        }
    }

    /// Cuts off what stands behind the last frame. The cut is durable before this returns: a frame that was written whole before
    /// its error would be read after a crash.
    fn cut(&mut self) -> io::Result<()> {
        unless!(NoCut, self.file.set_len(self.named.len)?);
        unless!(NoCutSync, self.file.sync()?);
        Ok(())
    }

    /// Tries whether the disk takes this number of bytes more. The log is as it was before.
    pub(crate) fn try_room(&mut self, bytes: usize) -> Result<(), AppendError> {
        self.verify()?;
        let written = self.file.write_all_at(&vec![0; bytes], self.len());
        self.cut().map_err(AppendError::Unknown)?;
        written.map_err(AppendError::Undone)
    }

    /// Begins the next log. The old one is complete.
    ///
    /// The next log is durable before the old one gets its end, and has no frame before the end is durable. So a log with an end
    /// has a successor, and a log without one has none with a frame.
    ///
    /// Returns the old log.
    pub(crate) fn rotate(&mut self) -> Result<NamedFile, AppendError> {
        let disk = Arc::clone(&self.disk);
        let number = self.number() + 1;
        let next = Self::create(&disk, number).map_err(AppendError::Undone).and_then(|next| {
            self.named.len += self.write(&mut FrameBuffer::new())?;
            Ok(next)
        });
        match next {
            Ok(next) => {
                unless!(NoEndSync, self.file.sync().map_err(AppendError::Unknown)?);
                Ok(mem::replace(self, next).named)
            }
            Err(error) => {
                // A start removes it too: it has no frame. If the old log may have its end, it must stay.
                if !matches!(error, AppendError::Unknown(_)) {
                    let _ = disk.remove(&Kind::Log.file_name(number));
                }
                Err(error)
            }
        }
    }
}

/// Writes a file under a name that marks it as incomplete, and renames it when it is complete and synced.
#[derive(Debug)]
pub(crate) struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    header: FileHeader,
    frame: FrameBuffer,
    end: u64,
    /// The bytes that are synced.
    synced: u64,
    next_frame: u64,
}

/// The bytes of records from which a frame of a snapshot is written.
pub(crate) const SNAPSHOT_FRAME: usize = 1 << 20;

/// The bytes of a snapshot from which they are synced.
const SYNC_EACH: u64 = 16 << 20;

impl SnapshotWriter {
    /// Creates the snapshot with this number, and reserves the room of its bytes: the log must not take it meanwhile.
    pub(crate) fn create(disk: &Arc<dyn Disk>, number: u64, bytes: u64) -> io::Result<Self> {
        let header = FileHeader::new(Kind::Snapshot, number, salt());
        let mut file = disk.create(&(Kind::Snapshot.file_name(number) + INCOMPLETE))?;
        file.reserve(bytes)?;
        file.write_all_at(&header.encode(), 0)?;
        let frame = FrameBuffer::new();
        Ok(Self { disk: Arc::clone(disk), file, header, frame, end: HEADER as u64, synced: 0, next_frame: 1 })
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, record: &[u8]) -> io::Result<()> {
        self.frame.push(record);
        if self.frame.len() >= SNAPSHOT_FRAME { self.write_frame() } else { Ok(()) }
    }

    fn write_frame(&mut self) -> io::Result<()> {
        let bytes = self.frame.seal(self.header.salt, self.next_frame);
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        self.next_frame += 1;
        self.frame.clear();
        // Few bytes are left for the last sync, which cannot be cancelled, and the fsyncs of the log do not wait for many.
        if self.end - self.synced >= SYNC_EACH {
            self.file.sync()?;
            self.synced = self.end;
        }
        Ok(())
    }

    /// Completes the snapshot: it is durable under its name before this returns.
    pub(crate) fn finish(mut self) -> io::Result<NamedFile> {
        if !self.frame.is_empty() {
            self.write_frame()?;
        }
        self.write_frame()?; // a frame without records is the end
        self.file.set_len(self.end)?; // more may be reserved
        unless!(NoSnapshotSync, self.file.sync()?);
        let name = Kind::Snapshot.file_name(self.header.number);
        self.disk.rename(&(name.clone() + INCOMPLETE), &name)?;
        unless!(NoSnapshotNameSync, self.disk.sync()?);
        Ok(NamedFile { name, id: self.file.id()?, len: self.end })
    }
}
