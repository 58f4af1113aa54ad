//! Properties of rejected jobs: a full queue, and a queue that has space again.

use polyserve_core::{Job, RejectedReason};

use super::ExecutorSubject;
use super::pool::TestedPool;
use super::running::occupy;
use crate::event_count::EventCount;
use crate::property::needs;

const QUEUE: usize = 5;

/// If all workers are busy, an executor accepts jobs until its queue is full. It rejects the next job with a reason, and
/// the submitter can still run that job. An executor without a bound accepts many more jobs.
pub(super) fn a_full_queue_hands_the_job_back(subject: &ExecutorSubject) {
    let ((pool, go_on), ran) = (subject.occupied(2, QUEUE), subject.count());
    if subject.refuses() {
        let taken = fill(subject, &pool, &ran);
        assert_eq!(taken, QUEUE, "jobs that wait in a queue for {QUEUE}");
        go_on.add();
        assert!(ran.reaches(taken), "{} of {taken} jobs that were taken ran", ran.get());
    } else {
        let count = 4 * QUEUE;
        pool.run_counted(count, &ran);
        go_on.add();
        assert!(ran.reaches(count), "{} of {count} jobs that were taken ran", ran.get());
    }
}

/// Submits jobs until one is rejected, and checks the rejected job. Returns the number of accepted jobs.
fn fill(subject: &ExecutorSubject, pool: &TestedPool, ran: &EventCount) -> usize {
    for taken in 0..=QUEUE {
        let handle = pool.handle();
        let (its_ran, runs) = (ran.clone(), subject.count());
        let its_runs = runs.clone();
        let job = Job::new(move || {
            its_runs.add();
            its_ran.add();
        });
        let Err(rejected) = subject.within("execute", move || handle.execute(job)) else { continue };
        assert_eq!(rejected.reason, RejectedReason::Full, "why a job was rejected");
        let before = ran.get();
        rejected.job.run();
        assert_eq!((runs.get(), ran.get()), (1, before + 1), "the job that was handed back is not the one submitted");
        return taken;
    }
    panic!("more than {QUEUE} jobs wait in a queue for {QUEUE}");
}

/// After the queued jobs have run, a full queue accepts the same number of jobs again.
pub(super) fn room_comes_back(subject: &ExecutorSubject) -> Result<(), String> {
    needs(subject.refuses(), "it is declared to refuse nothing")?;
    let pool = subject.pool(1, QUEUE);
    for round in 0..20 {
        let (go_on, ran) = (subject.count(), subject.count());
        occupy(subject, &*pool.handle(), 1, &go_on);
        let taken = fill(subject, &pool, &ran);
        assert_eq!(taken, QUEUE, "jobs that wait in a queue for {QUEUE}, in round {round}");
        go_on.add();
        assert!(ran.reaches(taken + 1), "{} of {taken} jobs ran in round {round}", ran.get() - 1);
    }
    Ok(())
}
