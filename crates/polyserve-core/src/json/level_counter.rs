//! Counts the levels of the values that a type reads. What the type ignores does not count.
//!
//! [`LevelCounter`] goes around a part of serde's machine, for one level, and puts itself around the parts of the next. Each method
//! passes its result on without looking at it, so a level of the text takes little more stack.

use std::cell::Cell;
use std::fmt;

use serde_core::de::{DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

/// A deserializer, or a part that one calls, inside of `level` arrays and objects.
pub(super) struct LevelCounter<'c, T> {
    inner: T,
    level: usize,
    /// The levels of the most deeply nested value.
    deepest: &'c Cell<usize>,
}

impl<'c, T> LevelCounter<'c, T> {
    /// Counts into `deepest` what is read from here on.
    pub(super) fn new(inner: T, deepest: &'c Cell<usize>) -> Self {
        Self { inner, level: 0, deepest }
    }

    /// Puts the same around another part of this level.
    fn around<U>(&self, inner: U) -> LevelCounter<'c, U> {
        LevelCounter { inner, level: self.level, deepest: self.deepest }
    }

    /// Puts itself around the content of an array or an object.
    fn inside<U>(&self, inner: U) -> LevelCounter<'c, U> {
        let level = self.level + 1;
        self.deepest.set(self.deepest.get().max(level));
        LevelCounter { inner, level, deepest: self.deepest }
    }
}

/// Forwards methods of [`Deserializer`] with these arguments before the visitor.
macro_rules! deserialize {
    ($($method:ident($($argument:ident: $type:ty),*)),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self $(, $argument: $type)*, visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.around(visitor);
            self.inner.$method($($argument,)* visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for LevelCounter<'_, D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any(), deserialize_bool(), deserialize_i8(), deserialize_i16(), deserialize_i32(), deserialize_i64(),
        deserialize_i128(), deserialize_u8(), deserialize_u16(), deserialize_u32(), deserialize_u64(), deserialize_u128(),
        deserialize_f32(), deserialize_f64(), deserialize_char(), deserialize_str(), deserialize_string(),
        deserialize_bytes(), deserialize_byte_buf(), deserialize_option(), deserialize_unit(),
        deserialize_unit_struct(name: &'static str), deserialize_newtype_struct(name: &'static str), deserialize_seq(),
        deserialize_tuple(len: usize), deserialize_tuple_struct(name: &'static str, len: usize), deserialize_map(),
        deserialize_struct(name: &'static str, fields: &'static [&'static str]),
        deserialize_enum(name: &'static str, variants: &'static [&'static str]), deserialize_identifier(),
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Forwards methods of [`Visitor`] with an argument.
macro_rules! visit {
    ($($method:ident($type:ty)),* $(,)?) => {$(
        fn $method<E: serde_core::de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for LevelCounter<'_, V> {
    type Value = V::Value;

    visit! {
        visit_bool(bool), visit_i8(i8), visit_i16(i16), visit_i32(i32), visit_i64(i64), visit_i128(i128), visit_u8(u8),
        visit_u16(u16), visit_u32(u32), visit_u64(u64), visit_u128(u128), visit_f32(f32), visit_f64(f64), visit_char(char),
        visit_str(&str), visit_borrowed_str(&'de str), visit_string(String), visit_bytes(&[u8]),
        visit_borrowed_bytes(&'de [u8]), visit_byte_buf(Vec<u8>),
    }

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }

    fn visit_none<E: serde_core::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: serde_core::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        let value = self.around(value);
        self.inner.visit_some(value)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        let value = self.around(value);
        self.inner.visit_newtype_struct(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        let items = self.inside(items);
        self.inner.visit_seq(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        let fields = self.inside(fields);
        self.inner.visit_map(fields)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let variant = self.around(variant);
        self.inner.visit_enum(variant)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for LevelCounter<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<S::Value, D::Error> {
        let value = self.around(value);
        self.inner.deserialize(value)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for LevelCounter<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.around(seed);
        self.inner.next_element_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for LevelCounter<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.around(seed);
        self.inner.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.around(seed);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'c, A: EnumAccess<'de>> EnumAccess<'de> for LevelCounter<'c, A> {
    type Error = A::Error;
    type Variant = LevelCounter<'c, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let seed = self.around(seed);
        let (value, variant) = self.inner.variant_seed(seed)?;
        Ok((value, LevelCounter { inner: variant, level: self.level, deepest: self.deepest }))
    }
}

/// A variant with content is an object with one field.
impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for LevelCounter<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.inside(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.inside(visitor);
        self.inner.tuple_variant(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.inside(visitor);
        self.inner.struct_variant(fields, visitor)
    }
}
