//! A repo of [`NamedEntity`]s as a repo of published entities, so that all properties are tested on both types.

use crate::NamedEntity;
use polyserve_core::{
    Condition, Conditional, ETag, Entity, EntityRepo, EntityRepoExt as _, Lookup, ManyVisit, Put, Removed, RepoAnswer,
    ScanPage, ScanVisit, Shown, Tags, Visit,
};

/// The repo under test. The id `7` is stored as a text that a path, a pattern or a statement would have to encode, the other fields in a
/// nested struct.
#[derive(Debug)]
pub(super) struct Named<R>(pub(super) R);

const PREFIX: &str = "id {}*\\\0\"' \u{e4}/%2e\r\n";

/// The name of the entity with this id.
pub(crate) fn name(id: i64) -> String {
    format!("{PREFIX}{id}")
}

/// Returns the id of a name, or `None` if it is no name of an id.
pub(crate) fn id_of(name: &str) -> Option<i64> {
    name.strip_prefix(PREFIX).and_then(|id| id.parse().ok())
}

/// Returns the id of a name that a repo shows.
///
/// # Panics
///
/// Panics if the name is no name of an id: the repo has invented it.
fn shown_id(name: &str) -> i64 {
    id_of(name).unwrap_or_else(|| panic!("the repo shows the name {name:?}, which was never stored"))
}

/// Returns the published entity with the content of `named`.
fn published(named: NamedEntity) -> Entity {
    let NamedEntity { name, content } = named;
    Entity::new(shown_id(&name), content.description, content.value)
}

impl<R: EntityRepo<NamedEntity>> Named<R> {
    /// Returns a condition on the named entity of `id` that holds if and only if `condition` holds for the published one.
    /// The tags of the two differ, so each tag is replaced if it is that of the stored entity. Another thread may change
    /// the entity meanwhile. A refusal is right at the instant of the look-up, and the store decides everything else.
    fn translated(&self, id: i64, condition: &Condition) -> Condition {
        let stored = self.0.fetch(&name(id)).wait().ok().flatten();
        let tags = stored.and_then(|named| {
            let tag = ETag::of_entity(&named);
            ETag::of_entity(&published(named)).zip(tag)
        });
        let translate = |part: Option<&Tags>| {
            part.map(|part| match part {
                Tags::Any => Tags::Any,
                Tags::List(list) => Tags::List(
                    list.iter()
                        .map(|&tag| tags.filter(|&(published, _)| published == tag).map_or(tag, |(_, named)| named))
                        .collect(),
                ),
            })
        };
        Condition::new(translate(condition.if_match()), translate(condition.if_none_match()))
    }
}

impl<R: EntityRepo<NamedEntity>> EntityRepo for Named<R> {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let mut visit = Some(visit);
        let mut show = |shown: Shown<'_, NamedEntity>| {
            if let Some(visit) = visit.take() {
                visit.show(&published(shown.to_owned()));
            }
        };
        self.0.get(&name(id), Visit::new(&mut show)).map(|found| {
            found.map(|found| match found {
                Lookup::Absent => Lookup::Absent,
                Lookup::Visited(visited) => Lookup::Visited(visited),
                Lookup::Fetched(named) => Lookup::Fetched(published(named)),
            })
        })
    }

    fn get_many(&self, ids: &[i64], visit: ManyVisit<'_, Entity>) -> RepoAnswer<Vec<(usize, Entity)>> {
        let names: Vec<String> = ids.iter().map(|&id| name(id)).collect();
        let found = self.0.get_many(&names, &mut |place, named| {
            visit(place, Shown::from(&published(named.to_owned())));
        });
        found.map(|found| Ok(found?.into_iter().map(|(place, named)| (place, published(named))).collect()))
    }

    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        self.0.put(NamedEntity::new(name(entity.id), entity.description, entity.value))
    }

    fn version(&self, &id: &i64) -> Option<u64> {
        self.0.version(&name(id))
    }

    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        self.0.remove(&name(id))
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let condition = self.translated(entity.id, condition);
        self.0.put_if(NamedEntity::new(name(entity.id), entity.description, entity.value), &condition)
    }

    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.0.remove_if(&name(id), &self.translated(id, condition))
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.0.len()
    }

    fn can_scan(&self) -> bool {
        self.0.can_scan()
    }

    fn scan(&self, after: Option<&i64>, limit: usize, visit: ScanVisit<'_, Entity>) -> RepoAnswer<ScanPage<Entity>> {
        let after = after.map(|&id| name(id));
        let page = self.0.scan(after.as_ref(), limit, &mut |name, named| {
            let entity = published(named.to_owned());
            visit(&shown_id(name), Shown::from(&entity))
        });
        page.map(|page| {
            let page = page?;
            let entities = page.entities.into_iter().map(published).collect();
            Ok(ScanPage { entities, has_more: page.has_more })
        })
    }
}
