//! Many gets in one call: what [`EntityRepo::get_many`] does by default, and for a repo that answers later.

use std::collections::VecDeque;
use std::hint::black_box;

use crate::answer::{Answer, BoxFuture};
use crate::entity::Identifiable;
use crate::repo::{EntityRepo, Lookup, ManyVisit, RepoAnswer, RepoError, Visit};
use crate::shown::Shown;

/// A get that was not shown to the visit.
enum Unseen<E> {
    Later(BoxFuture<Result<Lookup<E>, RepoError>>),
    Fetched(E),
}

/// Calls `visit` with `shown`, and does not copy it as a whole.
///
/// The repo has just stored the two words of `shown` one by one. A copy would load both at once, and a core cannot forward two stores to
/// one load: it waits for them and for all earlier loads, so that no two cache misses overlap. So the reference to an entity is loaded by
/// itself, into a register. The `black_box` keeps the compiler from making that the copy again.
#[inline]
fn pass_by_register<E: Identifiable>(shown: Shown<'_, E>, mut visit: impl FnMut(Shown<'_, E>)) {
    match shown.entity() {
        Some(entity) => visit(Shown::from(black_box(entity))),
        None => visit(shown),
    }
}

/// Gets each id by itself. Answers that come later are awaited together: their operations have begun.
pub(crate) fn get_each<E: Identifiable>(
    repo: &(impl EntityRepo<E> + ?Sized),
    ids: &[E::Id],
    visit: ManyVisit<'_, E>,
) -> RepoAnswer<Vec<(usize, E)>> {
    let mut unseen = Vec::new();
    for (place, id) in ids.iter().enumerate() {
        // Each arm takes only what it needs out of the answer. A move of the whole answer would read it in pieces that are larger than
        // those in which it was written. A core lets such a read wait for all earlier loads, so the cache misses of two gets would not
        // overlap.
        let one = match repo.get(id, Visit::new(&mut |shown| pass_by_register(shown, |shown| visit(place, shown)))) {
            Answer::Now(Ok(Lookup::Visited(_visited))) => continue,
            Answer::Now(Ok(Lookup::Absent)) => continue,
            Answer::Now(Ok(Lookup::Fetched(entity))) => Unseen::Fetched(entity),
            Answer::Now(Err(error)) => return Answer::Now(Err(error)),
            Answer::Later(future) => Unseen::Later(future),
        };
        unseen.push((place, one));
    }
    if unseen.is_empty() {
        return Answer::Now(Ok(Vec::new()));
    }
    Answer::later(async move {
        let mut entities = Vec::with_capacity(unseen.len());
        for (place, one) in unseen {
            match one {
                Unseen::Fetched(entity) => entities.push((place, entity)),
                Unseen::Later(future) => {
                    if let Lookup::Fetched(entity) = future.await? {
                        entities.push((place, entity));
                    }
                }
            }
        }
        Ok(entities)
    })
}

/// The max number of gets of one call that are not answered.
const MAX_AT_A_TIME: usize = 256;

/// Gets many ids for a repo that answers later and has a bounded queue, as [`EntityRepo::get_many`]: more ids than the queue holds are no
/// reason to refuse them. `get` is the repo's [`get`](EntityRepo::get); it holds what the repo needs for that.
///
/// The gets begin in the order of the ids, at most 256 before the first of them is answered. If one of them is
/// [`RepoError::Overloaded`], it is repeated with those after it, half as many at a time. By itself, it is the error of the call.
///
/// ```
/// use polyserve_core::{Answer, Entity, Lookup, get_in_turn};
///
/// let found = get_in_turn::<Entity>(&[7, 8, 7], |id| {
///     let found = if *id == 7 { Lookup::Fetched(Entity::new(7, "later", 0.5)) } else { Lookup::Absent };
///     Answer::later(async { Ok(found) })
/// });
/// let places: Vec<_> = found.wait()?.into_iter().map(|(place, _)| place).collect();
/// assert_eq!(places, [0, 2]);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub fn get_in_turn<E: Identifiable>(
    ids: &[E::Id],
    get: impl Fn(&E::Id) -> RepoAnswer<Lookup<E>> + Send + 'static,
) -> RepoAnswer<Vec<(usize, E)>> {
    let mut begun: VecDeque<_> = ids.iter().take(MAX_AT_A_TIME).map(&get).collect();
    let ids = ids.to_vec();
    Answer::later(async move {
        let (mut max, mut place, mut found) = (MAX_AT_A_TIME, 0, Vec::new());
        while let Some(first) = begun.pop_front() {
            match first.await {
                Ok(Lookup::Fetched(entity)) => found.push((place, entity)),
                Ok(Lookup::Absent | Lookup::Visited(_)) => {}
                Err(RepoError::Overloaded) if max > 1 => {
                    // They have a place in the queue until they are answered.
                    for other in begun.drain(..) {
                        let _ = other.await;
                    }
                    max /= 2;
                    begun.push_back(get(&ids[place]));
                    continue;
                }
                Err(error) => return Err(error),
            }
            place += 1;
            let next = ids.iter().skip(place + begun.len()).map(&get);
            let room = max - begun.len();
            begun.extend(next.take(room));
        }
        Ok(found)
    })
}
