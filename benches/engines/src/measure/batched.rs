//! An engine with the batching of the durable store: one thread commits all waiting puts in one transaction.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use polyserve_core::{Completer, Entity, promise};
use polyserve_memory::Sharded;

use super::engine::StoreEngine;
use crate::Failure;

/// A waiting put. Its answer has the text of an error.
type Waiting = (Entity, Completer<Result<(), String>>);

/// An engine, and the thread that writes to it.
pub struct Batched {
    engine: Arc<dyn StoreEngine>,
    puts: Option<Sender<Waiting>>,
    writer: Option<JoinHandle<()>>,
}

impl Batched {
    pub fn new(engine: Box<dyn StoreEngine>) -> Self {
        let engine: Arc<dyn StoreEngine> = engine.into();
        let (puts, waiting) = channel();
        let writer = thread::spawn({
            let engine = Arc::clone(&engine);
            move || write(&*engine, &waiting)
        });
        Self { engine, puts: Some(puts), writer: Some(writer) }
    }
}

fn write(engine: &dyn StoreEngine, waiting: &Receiver<Waiting>) {
    while let Ok(first) = waiting.recv() {
        let (entities, answers): (Vec<_>, Vec<_>) = std::iter::once(first).chain(waiting.try_iter()).unzip();
        let result = engine.put_all(&entities).map_err(|error| error.to_string());
        for answer in answers {
            let _ = answer.complete(result.clone());
        }
    }
}

impl StoreEngine for Batched {
    fn put_all(&self, entities: &[Entity]) -> Result<(), Failure> {
        let puts = self.puts.as_ref().ok_or("the writer has ended")?;
        let mut answers = Vec::with_capacity(entities.len());
        for entity in entities {
            let (completer, answer) = promise(Err("the writer has ended".to_owned()));
            puts.send((entity.clone(), completer))?;
            answers.push(answer);
        }
        for answer in answers {
            answer.wait()?;
        }
        Ok(())
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, Failure> {
        self.engine.get(id)
    }

    fn load(&self, into: &Sharded) -> Result<(), Failure> {
        self.engine.load(into)
    }
}

impl Drop for Batched {
    fn drop(&mut self) {
        drop(self.puts.take());
        let _ = self.writer.take().map(JoinHandle::join);
    }
}
