//! Strategies with one flaw each. The kit's own tests show which named property catches each flaw. A property that
//! catches no flaw here would show nothing elsewhere.

pub mod engines;
pub mod executors;
pub mod repos;
pub mod servers;

/// Lists flaws, each with the properties that catch it.
macro_rules! flaws {
    ($(#[$about:meta])* $name:ident; $($(#[$doc:meta])* $flaw:ident, caught by $($property:ident),+;)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $flaw,)*
        }

        impl $name {
            /// Every flaw.
            pub const ALL: &[Self] = &[$(Self::$flaw,)*];

            /// The names of the properties that it breaks. It is named for the first.
            pub fn caught_by(self) -> &'static [&'static str] {
                match self {
                    $(Self::$flaw => &[$(stringify!($property)),+],)*
                }
            }
        }
    };
}
use flaws;
