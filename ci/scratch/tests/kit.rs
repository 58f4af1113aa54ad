//! The kit, on a repo of one's own: one line.

polyserve_conformance::repo_conformance!(tree, polyserve_conformance::repo::RepoSubject::new(scratch::Tree::default));
