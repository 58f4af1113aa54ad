//~ `new` creates a repo of the published `Entity`, not of `Account`
//~ call `of` in place of `new`: `Sharded::of::<Account>()`
use polyserve::identifiable;
use polyserve::memory::Sharded;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Account(String, i64);
identifiable!(Account, 0: String);

fn main() {
    let _ = Sharded::<Account>::new();
}
