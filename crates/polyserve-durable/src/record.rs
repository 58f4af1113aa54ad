//! The records of writes, and their way back into a repo in memory.

use polyserve_core::{EntityRepo, Identifiable, RepoError};

use crate::error::{Damage, OpenError};
use crate::format::{Change, MAX_RECORD, Record};

/// Returns the record of a put.
///
/// The entity is written as its JSON, so that the type may gain fields with defaults. The
/// record is read back once: if the JSON does not become the same JSON again (a NaN has none), the entity is written in
/// postcard's form.
///
/// # Errors
///
/// Returns [`RepoError::Other`] if neither form can be read back, and [`RepoError::TooLarge`] if the record is too long.
pub(crate) fn put_record<E: Identifiable>(entity: &E) -> Result<Vec<u8>, RepoError> {
    let json = |entity: &E| {
        let mut json = Vec::with_capacity(128);
        entity.write_json(&mut json).map(|()| json)
    };
    let written = json(entity).map_err(RepoError::Other)?;
    let is_same = |read: &E| json(read).is_ok_and(|rewritten| rewritten == written);
    let id = entity.id();
    let mut record = Vec::with_capacity(written.len() + 64);
    match E::read_json(&written) {
        Ok(read) if read.id() == id && is_same(&read) => {
            let _ = Record::write(Change::Put, id, &mut record, |out| {
                out.extend_from_slice(&written);
                Ok::<(), ()>(())
            });
        }
        _ => {
            let packed = postcard::to_extend(entity, Vec::new()).map_err(unreadable)?;
            let read: E = postcard::from_bytes(&packed).map_err(unreadable)?;
            let repacked = postcard::to_extend(&read, Vec::new()).map_err(unreadable)?;
            if repacked != packed || read.id() != id || !is_same(&read) {
                return Err(unreadable("it is another entity after it was read back"));
            }
            let _ = Record::write(Change::PutPacked, id, &mut record, |out| {
                out.extend_from_slice(&packed);
                Ok::<(), ()>(())
            });
        }
    }
    checked(record)
}

/// Returns the record of a remove.
pub(crate) fn remove_record<E: Identifiable>(id: &E::Id) -> Result<Vec<u8>, RepoError> {
    let mut record = Vec::with_capacity(32);
    let _ = Record::write(Change::Remove, id, &mut record, |_| Ok::<(), ()>(()));
    checked(record)
}

fn unreadable(reason: impl std::fmt::Display) -> RepoError {
    RepoError::Other(format!("the entity cannot be stored: {reason}").into())
}

fn checked(record: Vec<u8>) -> Result<Vec<u8>, RepoError> {
    if record.len() <= MAX_RECORD {
        return Ok(record);
    }
    let why = format!("the record of the write has {} bytes, and the max is {MAX_RECORD}", record.len());
    Err(RepoError::TooLarge(why.into()))
}

/// Applies a record to the repo in memory.
pub(crate) fn apply<E: Identifiable>(
    memory: &impl EntityRepo<E>,
    file: &str,
    record: Record<'_>,
    offset: u64,
) -> Result<(), OpenError> {
    let wrong =
        |reason: String| OpenError::NotAnEntity { damage: Damage::new(file, offset, reason), id: record.id.to_owned() };
    let taken = match record.change {
        Change::Put | Change::PutPacked => memory.put(read_entity(record).map_err(wrong)?).wait().map(drop),
        Change::Remove => {
            let id = record.id.parse().map_err(|_| wrong("its id is none of this type".to_owned()))?;
            memory.remove(&id).wait().map(drop)
        }
    };
    taken.map_err(OpenError::Memory)
}

/// Reads the entity of a put.
pub(crate) fn read_entity<E: Identifiable>(record: Record<'_>) -> Result<E, String> {
    match record.change {
        Change::PutPacked => postcard::from_bytes(record.entity).map_err(|error| error.to_string()),
        Change::Put | Change::Remove => E::read_json(record.entity).map_err(|error| error.to_string()),
    }
}
