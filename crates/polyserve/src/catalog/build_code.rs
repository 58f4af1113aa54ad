//! The Rust code that builds a strategy.

/// The Rust code that builds a strategy, in a scope with [`IMPORT`](Self::IMPORT).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildCode {
    /// The feature of this crate that the code needs in addition to the default features.
    pub feature: Option<&'static str>,
    /// An expression of the strategy's type. If it ends with `?`, the function around it must accept any error type. A
    /// server's expression contains [`CONFIG`](Self::CONFIG) once. An executor's expression reads the configuration
    /// from the variable `c`.
    pub expression: String,
}

impl BuildCode {
    /// The names that an expression needs in scope.
    pub const IMPORT: &str = "use polyserve::prelude::*;";

    /// The configuration in a server's expression.
    pub const CONFIG: &str = "ServerConfig::default()";

    /// Creates the code of a strategy.
    pub fn new(feature: Option<&'static str>, expression: impl Into<String>) -> Self {
        Self { feature, expression: expression.into() }
    }

    /// Returns the code of the server `path` over the executor `name` with this code.
    #[cfg(feature = "threadpool")]
    pub(super) fn over(&self, path: &str, name: &str) -> Self {
        let Self { feature, expression } = self;
        let config = Self::CONFIG;
        let constructor = match name {
            "mpsc_pool" => format!("mpsc({config})"),
            "crossbeam_pool" => format!("crossbeam({config})"),
            "stealing_pool" => format!("stealing({config})"),
            _ => format!("with_factory({config}, |c| Ok({expression}))"),
        };
        Self::new(*feature, format!("{path}::{constructor}?"))
    }
}
