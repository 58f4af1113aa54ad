//! The thread pool of the articles A and C: one boxed job for each connection, through one unbounded channel. Its receiver
//! is behind a mutex.
//!
//! Cost: a job is one allocation, a message in the channel, and a lock that all workers share.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;

type PoolJob = Box<dyn FnOnce() + Send + 'static>;

/// The pool. Dropping it closes the channel, runs what is queued, and joins the workers.
#[derive(Debug)]
pub struct ThreadPool {
    workers: Vec<thread::JoinHandle<()>>,
    jobs: Option<mpsc::Sender<PoolJob>>,
}

impl ThreadPool {
    /// Starts `size` workers. With `prints`, each prints a line before each job and at its end.
    pub fn new(size: usize, prints: bool) -> Self {
        let (jobs, receiver) = mpsc::channel::<PoolJob>();
        let receiver = Arc::new(Mutex::new(receiver));
        let worker = |id| {
            let receiver = Arc::clone(&receiver);
            thread::spawn(move || {
                loop {
                    let message = receiver.lock().expect("no holder of the receiver panics").recv();
                    let Ok(job) = message else { break };
                    if prints {
                        println!("worker {id} runs a job");
                    }
                    job();
                }
                if prints {
                    println!("worker {id} ends");
                }
            })
        };
        Self { workers: (0..size).map(worker).collect(), jobs: Some(jobs) }
    }

    /// Queues a job.
    ///
    /// # Panics
    ///
    /// Panics if all workers have ended: each of them has panicked in a job.
    pub fn execute(&self, job: impl FnOnce() + Send + 'static) {
        let jobs = self.jobs.as_ref().expect("it is there until the drop");
        jobs.send(Box::new(job)).expect("the workers hold the receiver");
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        drop(self.jobs.take()); // the workers run what is queued, and then find the channel closed
        for worker in self.workers.drain(..) {
            let _ = worker.join(); // a worker that panicked has said so
        }
    }
}
