//! What a repo stores: a value with an id ([`Identifiable`]), and the published [`Entity`].

mod fields;
pub(crate) mod spare_text;

use std::any::TypeId;
use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::str::FromStr;

use serde_core::Serialize;
use serde_core::de::DeserializeOwned;

use crate::json::{self, InvalidEntity};
use crate::stack;

/// An id: what names an entity in a repo and, as text, in a path. Every type with these properties is one: `i64`, `u64`,
/// `String`, a UUID.
///
/// Its [`Display`](fmt::Display) and its [`FromStr`] must agree: the text of an id reads as an equal id.
///
/// None of its operations should panic. In the stores in memory, a panic fails the operation that called it, and nothing
/// else. There is one exception: maps of std and of `hashbrown` lose entities if [`Hash`] panics while they remove the traces
/// of removed entries. `std_mutex`, `std_rwlock`, `two_level`, `dashmap`, `packed` and `actor` are over such maps.
///
/// ```
/// use polyserve_core::EntityId;
///
/// #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
/// struct Isbn(u64);
///
/// impl std::fmt::Display for Isbn {
///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
///         write!(f, "{:013}", self.0)
///     }
/// }
///
/// impl std::str::FromStr for Isbn {
///     type Err = std::num::ParseIntError;
///     fn from_str(text: &str) -> Result<Self, Self::Err> {
///         text.parse().map(Self)
///     }
/// }
///
/// fn is_an_id(_: impl EntityId) {}
/// is_an_id(Isbn(9_780_262_033_848));
/// assert_eq!(Isbn(7).to_string().parse(), Ok(Isbn(7)));
/// ```
pub trait EntityId: Clone + Eq + Hash + Ord + fmt::Display + FromStr + fmt::Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Ord + fmt::Display + FromStr + fmt::Debug + Send + Sync + 'static> EntityId for T {}

/// What repos store and services show: a type with an id and serde's traits.
///
/// Its JSON must be deterministic: an unchanged value has the same bytes each time, in every process. Entity tags are computed
/// over these bytes, and a conditional write compares the tags. So a field with an order of its own in each process, such as
/// a `HashMap`, needs an ordered type instead, such as a `BTreeMap`.
///
/// ```
/// use polyserve_core::Identifiable;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Account {
///     name: String,
///     balance: i64,
/// }
///
/// impl Identifiable for Account {
///     type Id = String;
///
///     fn id(&self) -> &String {
///         &self.name
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not `Identifiable`, so no repo can store it",
    label = "it needs an id",
    note = "write `identifiable!({Self}, FIELD: TYPE)` with the field that is the id, such as `name: String`, or `0: String` \
            for a tuple struct; or implement `Identifiable`",
    note = "the type must also derive `Clone`, `Debug`, and serde's `Serialize` and `Deserialize`"
)]
pub trait Identifiable: Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The type of the id.
    type Id: EntityId;

    /// Returns the id. It never changes while the value is stored.
    fn id(&self) -> &Self::Id;

    /// Reads the text of an id, such as a segment of a path after percent-decoding. Returns `None` if it is no id. A number
    /// with a plus sign is none: `+5` would be a second name of `5`.
    fn parse_id(text: &str) -> Option<Self::Id> {
        let id: Self::Id = text.parse().ok()?;
        let is_second_name = text.starts_with('+') && !id.to_string().starts_with('+');
        (!is_second_name).then_some(id)
    }

    /// Returns what an id looks like, for the message to a client that sent none. It completes the sentence "an id is ...".
    fn id_form() -> &'static str {
        number_form::<Self::Id>().unwrap_or(if TypeId::of::<Self::Id>() == TypeId::of::<String>() {
            "a percent-encoded text of 1 to 512 bytes, other than . and .."
        } else {
            "a percent-encoded text of 1 to 512 bytes, in the form of its type"
        })
    }

    /// Appends the JSON form, which is an object.
    ///
    /// # Errors
    ///
    /// Returns the error of the type's own [`Serialize`]. A derived one fails only for what JSON cannot express, such as
    /// a map with keys that are no strings.
    fn write_json(&self, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(stack::for_values(|| serde_json::to_writer(out, self))?)
    }

    /// Reads the JSON form. At most 128 levels may be nested. The stack grows if what remains is too small for them, and the depth
    /// of the value is noted: from then on the service has stack to write, copy and drop it.
    ///
    /// A value from elsewhere is not noted: one that the program puts, or of a type with a `read_json` of its own. If such a value
    /// has more than two levels, there may be too little stack for it: read one of the same depth by the provided method first, or
    /// use threads with a stack of [`FOR_ANY_VALUE`](stack::FOR_ANY_VALUE).
    ///
    /// # Errors
    ///
    /// Returns [`InvalidEntity`] if `body` is no JSON, or JSON of something else.
    fn read_json(body: &[u8]) -> Result<Self, InvalidEntity> {
        json::read(body)
    }

    /// Drops a value that is not needed any more. A store may call it for a value that a put has replaced, when no lock is held. A type may
    /// keep one of its buffers for the next value that the thread reads, as [`Entity`] does.
    fn recycle(self) {}
}

/// Returns what an id looks like if it is a number of at most 64 bits. The compiler knows the answer.
pub(crate) fn number_form<I: 'static>() -> Option<&'static str> {
    let id = TypeId::of::<I>();
    Some(if id == TypeId::of::<i64>() {
        "a whole number of 64 bits, such as 42 or -7"
    } else if id == TypeId::of::<u64>() {
        "a whole number of 64 bits without a sign, such as 42"
    } else if id == TypeId::of::<i32>() {
        "a whole number of 32 bits, such as 42 or -7"
    } else if id == TypeId::of::<u32>() {
        "a whole number of 32 bits without a sign, such as 42"
    } else {
        return None;
    })
}

/// Implements [`Identifiable`] for a type with a field that is its id.
///
/// ```
/// use polyserve_core::{Identifiable, identifiable};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Account {
///     name: String,
///     balance: i64,
/// }
/// identifiable!(Account, name: String);
///
/// assert_eq!(Account { name: "first".into(), balance: 7 }.id(), "first");
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Pair(String, i64);
/// identifiable!(Pair, 0: String);
///
/// assert_eq!(Pair("first".into(), 7).id(), "first");
/// ```
#[macro_export]
macro_rules! identifiable {
    ($entity:ty, $field:tt: $id:ty) => {
        impl $crate::Identifiable for $entity {
            type Id = $id;

            fn id(&self) -> &$id {
                &self.$field
            }
        }
    };
}

/// The published entity: the default of every repo and service.
///
/// ```
/// use polyserve_core::{Entity, Identifiable};
///
/// let entity = Entity::read_json(br#"{"id":1,"description":"first","value":0.5}"#)?;
/// assert_eq!(entity, Entity::new(1, "first", 0.5));
/// assert_eq!(entity.as_ref().to_entity(), entity);
/// # Ok::<(), polyserve_core::InvalidEntity>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entity {
    /// The key.
    pub id: i64,
    /// Free text.
    pub description: String,
    /// A number. JSON has neither NaN nor infinity, so neither arrives over HTTP. If Rust code stores one, HTTP clients
    /// get `null`.
    pub value: f64,
}

impl Entity {
    /// Creates an entity.
    pub fn new(id: i64, description: impl Into<String>, value: f64) -> Self {
        Self { id, description: description.into(), value }
    }

    /// Returns the fields, borrowed.
    pub fn as_ref(&self) -> EntityRef<'_> {
        EntityRef { id: self.id, description: &self.description, value: self.value }
    }
}

impl Identifiable for Entity {
    type Id = i64;

    #[inline]
    fn id(&self) -> &i64 {
        &self.id
    }

    /// Reads `-?[0-9]+`, within an i64.
    #[inline]
    fn parse_id(text: &str) -> Option<i64> {
        short_number(text).or_else(|| if text.starts_with('+') { None } else { text.parse().ok() })
    }

    /// Appends `{"id":1,"description":"...","value":60.750847}`, without an allocation of its own.
    #[inline]
    fn write_json(&self, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.as_ref().write_json(out);
        Ok(())
    }

    fn read_json(body: &[u8]) -> Result<Self, InvalidEntity> {
        json::usual::read(body).map_or_else(|| json::read_flat(body), Ok)
    }

    /// Keeps the buffer of a short description for the next one that this thread reads.
    #[inline]
    fn recycle(self) {
        spare_text::keep(self.description);
    }
}

/// Reads a number of 1 to 18 digits. An `i64` holds each of them, so none is checked for an overflow.
#[inline]
fn short_number(text: &str) -> Option<i64> {
    if !(1..=18).contains(&text.len()) {
        return None;
    }
    let mut number = 0;
    for byte in text.bytes() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(number)
}

/// The borrowed fields of an [`Entity`]. A store that packs its entities has these fields without an [`Entity`].
///
/// ```
/// use polyserve_core::{Entity, EntityRef};
/// let fields = EntityRef { id: 1, description: "first", value: 0.5 };
/// assert_eq!(fields.to_entity(), Entity::new(1, "first", 0.5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EntityRef<'a> {
    /// The key.
    pub id: i64,
    /// Free text.
    pub description: &'a str,
    /// A number.
    pub value: f64,
}

impl EntityRef<'_> {
    /// Returns an owned copy.
    pub fn to_entity(self) -> Entity {
        Entity::new(self.id, self.description, self.value)
    }

    /// Appends the JSON form, without an allocation of its own.
    #[inline]
    pub fn write_json(self, out: &mut Vec<u8>) {
        json::write_published(self, out);
    }
}
