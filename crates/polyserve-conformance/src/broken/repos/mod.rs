//! Repos with one flaw each. Each names the property that catches it, and the kit's own tests check that.
//!
//! A repo that is wrong under a race yields to other threads at the worst moment, so that it loses the race often.

mod late;
mod ordered;
mod plain;
mod raced;

pub use late::*;
pub use ordered::*;
pub use plain::*;
pub use raced::*;

/// Delegates the operations that a broken repo gets right to its field `inner`.
macro_rules! delegate {
    () => {};
    (get $($rest:ident)*) => {
        fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
            self.inner.get(&id, visit)
        }
        delegate!($($rest)*);
    };
    (put $($rest:ident)*) => {
        fn put(&self, entity: Entity) -> RepoAnswer<Put> {
            self.inner.put(entity)
        }
        delegate!($($rest)*);
    };
    (remove $($rest:ident)*) => {
        fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
            self.inner.remove(&id)
        }
        delegate!($($rest)*);
    };
    (put_if $($rest:ident)*) => {
        fn put_if(
            &self,
            entity: Entity,
            condition: &polyserve_core::Condition,
        ) -> RepoAnswer<polyserve_core::Conditional<Put>> {
            self.inner.put_if(entity, condition)
        }
        delegate!($($rest)*);
    };
    (remove_if $($rest:ident)*) => {
        fn remove_if(
            &self,
            &id: &i64,
            condition: &polyserve_core::Condition,
        ) -> RepoAnswer<polyserve_core::Conditional<Removed>> {
            self.inner.remove_if(&id, condition)
        }
        delegate!($($rest)*);
    };
    (len $($rest:ident)*) => {
        fn len(&self) -> RepoAnswer<u64> {
            self.inner.len()
        }
        delegate!($($rest)*);
    };
}
use delegate;

/// Makes a repo over the reference that has one flaw, from its state, the operations that it gets right, and the others.
macro_rules! broken {
    (
        $(#[$doc:meta])* $name:ident $({ $($field:ident: $type:ty),* })?, right in: $($right:ident)*;
        $($wrong:tt)*
    ) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $name {
            inner: crate::repo::Reference,
            $($($field: $type),*)?
        }

        impl EntityRepo for $name {
            $($wrong)*
            delegate!($($right)*);
        }
    };
}
use broken;
