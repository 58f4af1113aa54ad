//~ `Account` is not `Identifiable`, so no repo can store it
//~ write `identifiable!(Account, FIELD: TYPE)` with the field that is the id
use polyserve::memory::Sharded;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Account {
    name: String,
}

fn main() {
    let _ = Sharded::of::<Account>();
}
