//! The contestants. Each stores an entity durably before `put` returns.

use std::path::Path;
use std::slice;
use std::sync::Mutex;

use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Identifiable};
use polyserve_durable::{CommitCounts, Durable};
use polyserve_memory::Sharded;

use super::batched::Batched;
use crate::Failure;

/// A store with several writer threads.
pub trait StoreEngine: Send + Sync {
    /// Stores the entities in one transaction. Returns when they are durable.
    fn put_all(&self, entities: &[Entity]) -> Result<(), Failure>;

    /// Stores the entity. Returns when it is durable.
    fn put(&self, entity: &Entity) -> Result<(), Failure> {
        self.put_all(slice::from_ref(entity))
    }

    /// Reads an entity back.
    fn get(&self, id: i64) -> Result<Option<Entity>, Failure>;

    /// Reads all entities into a repo in memory. Does nothing if the engine already has them in memory.
    fn load(&self, into: &Sharded) -> Result<(), Failure>;

    /// Returns the counts of commits, or `None` if the engine does not count them.
    fn counts(&self) -> Option<CommitCounts> {
        None
    }
}

pub const NAMES: [&str; 8] = [
    "durable",
    "durable, a fsync for each PUT",
    "redb",
    "redb, batched",
    "fjall",
    "fjall, batched",
    "heed",
    "heed, batched",
];

/// Opens an engine. If its name ends with `, batched`, all waiting puts share a transaction.
pub fn open(name: &str, directory: &Path) -> Result<Box<dyn StoreEngine>, Failure> {
    match name.strip_suffix(", batched") {
        Some(name) => Ok(Box::new(Batched::new(open_alone(name, directory)?))),
        None => open_alone(name, directory),
    }
}

fn open_alone(name: &str, directory: &Path) -> Result<Box<dyn StoreEngine>, Failure> {
    std::fs::create_dir_all(directory)?;
    Ok(match name {
        "durable" => Box::new(DurableEngine(Durable::open(directory, Sharded::new())?)),
        "durable, a fsync for each PUT" => {
            Box::new(SerialDurableEngine(DurableEngine(Durable::open(directory, Sharded::new())?), Mutex::new(())))
        }
        "redb" => Box::new(Redb::new(redb::Database::create(directory.join("redb"))?)?),
        "fjall" => {
            let database = fjall::Database::builder(directory).open()?;
            let entities = database.keyspace("entities", fjall::KeyspaceCreateOptions::default)?;
            Box::new(Fjall(database, entities))
        }
        "heed" => {
            // SAFETY: no other process and no other environment has the directory open.
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
    entity.write_json(&mut json)?;
    Ok(json)
}

fn parsed(json: &[u8]) -> Result<Entity, Failure> {
    Ok(Entity::read_json(json)?)
}

pub struct DurableEngine(pub Durable<Sharded>);

impl StoreEngine for DurableEngine {
    fn put_all(&self, entities: &[Entity]) -> Result<(), Failure> {
        let answers: Vec<_> = entities.iter().map(|entity| self.0.put(entity.clone())).collect();
        for answer in answers {
            answer.wait()?;
        }
        Ok(())
    }

    fn load(&self, _: &Sharded) -> Result<(), Failure> {
        Ok(())
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, Failure> {
        Ok(self.0.fetch(&id).wait()?)
    }

    fn counts(&self) -> Option<CommitCounts> {
        Some(self.0.counts())
    }
}

/// The durable store without group commit: one writer at a time.
struct SerialDurableEngine(DurableEngine, Mutex<()>);

impl StoreEngine for SerialDurableEngine {
    fn put_all(&self, entities: &[Entity]) -> Result<(), Failure> {
        let _turn = self.1.lock().map_err(|_| "a writer panicked")?;
        self.0.put_all(entities)
    }

    fn load(&self, into: &Sharded) -> Result<(), Failure> {
        self.0.load(into)
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, Failure> {
        self.0.get(id)
    }

    fn counts(&self) -> Option<CommitCounts> {
        self.0.counts()
    }
}

const TABLE: redb::TableDefinition<'_, i64, &[u8]> = redb::TableDefinition::new("entities");

/// redb: transactions with the default durability, an fsync per commit.
pub struct Redb(redb::Database);

impl Redb {
    pub fn new(database: redb::Database) -> Result<Self, Failure> {
        let write = database.begin_write()?;
        write.open_table(TABLE)?;
        write.commit()?;
        Ok(Self(database))
    }
}

impl StoreEngine for Redb {
    fn put_all(&self, entities: &[Entity]) -> Result<(), Failure> {
        let write = self.0.begin_write()?;
        let mut table = write.open_table(TABLE)?;
        for entity in entities {
            table.insert(entity.id, json(entity)?.as_slice())?;
        }
        drop(table);
        write.commit()?;
        Ok(())
    }

    fn load(&self, into: &Sharded) -> Result<(), Failure> {
        use redb::{ReadableDatabase, ReadableTable};
        for entry in self.0.begin_read()?.open_table(TABLE)?.iter()? {
            into.put(parsed(entry?.1.value())?).wait()?;
        }
        Ok(())
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, Failure> {
        use redb::ReadableDatabase;
        let table = self.0.begin_read()?.open_table(TABLE)?;
        table.get(id)?.map(|found| parsed(found.value())).transpose()
    }
}

/// fjall: batches, with an fdatasync of the journal per commit.
struct Fjall(fjall::Database, fjall::Keyspace);

impl StoreEngine for Fjall {
    fn put_all(&self, entities: &[Entity]) -> Result<(), Failure> {
        let mut batch = self.0.batch().durability(Some(fjall::PersistMode::SyncData));
        for entity in entities {
            batch.insert(&self.1, entity.id.to_be_bytes(), json(entity)?);
        }
        Ok(batch.commit()?)
    }

    fn load(&self, into: &Sharded) -> Result<(), Failure> {
        for entry in self.1.iter() {
            into.put(parsed(&entry.value()?)?).wait()?;
        }
        Ok(())
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, Failure> {
        self.1.get(id.to_be_bytes())?.map(|found| parsed(&found)).transpose()
    }
}

/// LMDB: transactions with the default durability, an fdatasync per commit.
struct Heed(heed::Env, heed::Database<heed::types::Bytes, heed::types::Bytes>);

impl StoreEngine for Heed {
    fn put_all(&self, entities: &[Entity]) -> Result<(), Failure> {
        let mut write = self.0.write_txn()?;
        for entity in entities {
            self.1.put(&mut write, &entity.id.to_be_bytes(), &json(entity)?)?;
        }
        write.commit()?;
        Ok(())
    }

    fn load(&self, into: &Sharded) -> Result<(), Failure> {
        let read = self.0.read_txn()?;
        for entry in self.1.iter(&read)? {
            into.put(parsed(entry?.1)?).wait()?;
        }
        Ok(())
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, Failure> {
        let read = self.0.read_txn()?;
        self.1.get(&read, &id.to_be_bytes())?.map(parsed).transpose()
    }
}
