//! The contestants: each stores an entity durably before `put` returns.

use std::path::Path;
use std::sync::Mutex;

use polyserve_core::repo::EntityRepoExt;
use polyserve_core::{Entity, EntityRepo, Identifiable};
use polyserve_durable::{CommitCounts, Durable};
use polyserve_memory::Sharded;

use crate::Failure;

/// A store that several threads write to.
pub trait Engine: Send + Sync {
    /// Returns when the entity is durable.
    fn put(&self, entity: &Entity) -> Result<(), Failure>;

    /// Reads an entity back.
    fn get(&self, id: i64) -> Result<Option<Entity>, Failure>;

    /// The batches, of the engine that counts them.
    fn counts(&self) -> Option<CommitCounts> {
        None
    }
}

pub const NAMES: [&str; 5] = ["durable", "durable, a fsync for each PUT", "redb", "fjall", "heed"];

/// Opens an engine in an empty directory.
pub fn open(name: &str, directory: &Path) -> Result<Box<dyn Engine>, Failure> {
    std::fs::create_dir_all(directory)?;
    Ok(match name {
        "durable" => Box::new(Ours(Durable::open(directory, Sharded::new())?)),
        "durable, a fsync for each PUT" => {
            Box::new(OneByOne(Durable::open(directory, Sharded::new())?, Mutex::new(())))
        }
        "redb" => {
            let database = redb::Database::create(directory.join("redb"))?;
            let write = database.begin_write()?;
            write.open_table(TABLE)?;
            write.commit()?;
            Box::new(Redb(database))
        }
        "fjall" => {
            let database = fjall::Database::builder(directory).open()?;
            let entities = database.keyspace("entities", fjall::KeyspaceCreateOptions::default)?;
            Box::new(Fjall(database, entities))
        }
        "heed" => {
            // SAFETY: the directory is new, and no other process and no other environment opens it.
            let environment = unsafe { heed::EnvOpenOptions::new().map_size(4 << 30).open(directory)? };
            let mut write = environment.write_txn()?;
            let entities = environment.create_database(&mut write, None)?;
            write.commit()?;
            Box::new(Heed(environment, entities))
        }
        _ => return Err(format!("there is no engine {name:?}").into()),
    })
}

fn json(entity: &Entity) -> Result<Vec<u8>, Failure> {
    let mut json = Vec::with_capacity(128);
    Entity::write_json(entity.view(), &mut json)?;
    Ok(json)
}

fn parsed(json: &[u8]) -> Result<Entity, Failure> {
    Ok(Entity::read_json(json)?)
}

struct Ours(Durable<Sharded>);

impl Engine for Ours {
    fn put(&self, entity: &Entity) -> Result<(), Failure> {
        self.0.put(entity.clone()).wait()?;
        Ok(())
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, Failure> {
        Ok(self.0.fetch(&id)?)
    }

    fn counts(&self) -> Option<CommitCounts> {
        Some(self.0.counts())
    }
}

/// The same store without group commit: one writer at a time.
struct OneByOne(Durable<Sharded>, Mutex<()>);

impl Engine for OneByOne {
    fn put(&self, entity: &Entity) -> Result<(), Failure> {
        let _turn = self.1.lock().map_err(|_| "a writer panicked")?;
        self.0.put(entity.clone()).wait()?;
        Ok(())
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, Failure> {
        Ok(self.0.fetch(&id)?)
    }

    fn counts(&self) -> Option<CommitCounts> {
        Some(self.0.counts())
    }
}

const TABLE: redb::TableDefinition<'_, i64, &[u8]> = redb::TableDefinition::new("entities");

/// A transaction for each put, with redb's default durability: an fsync at the commit.
struct Redb(redb::Database);

impl Engine for Redb {
    fn put(&self, entity: &Entity) -> Result<(), Failure> {
        let write = self.0.begin_write()?;
        write.open_table(TABLE)?.insert(entity.id, json(entity)?.as_slice())?;
        write.commit()?;
        Ok(())
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, Failure> {
        use redb::ReadableDatabase;
        let table = self.0.begin_read()?.open_table(TABLE)?;
        table.get(id)?.map(|found| parsed(found.value())).transpose()
    }
}

/// An insert, and a persist of the journal: an fdatasync for each put.
struct Fjall(fjall::Database, fjall::Keyspace);

impl Engine for Fjall {
    fn put(&self, entity: &Entity) -> Result<(), Failure> {
        self.1.insert(entity.id.to_be_bytes(), json(entity)?)?;
        self.0.persist(fjall::PersistMode::SyncData)?;
        Ok(())
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, Failure> {
        self.1.get(id.to_be_bytes())?.map(|found| parsed(&found)).transpose()
    }
}

/// LMDB: a transaction for each put, with its default durability: an fdatasync at the commit.
struct Heed(heed::Env, heed::Database<heed::types::Bytes, heed::types::Bytes>);

impl Engine for Heed {
    fn put(&self, entity: &Entity) -> Result<(), Failure> {
        let mut write = self.0.write_txn()?;
        self.1.put(&mut write, &entity.id.to_be_bytes(), &json(entity)?)?;
        write.commit()?;
        Ok(())
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, Failure> {
        let read = self.0.read_txn()?;
        self.1.get(&read, &id.to_be_bytes())?.map(parsed).transpose()
    }
}
