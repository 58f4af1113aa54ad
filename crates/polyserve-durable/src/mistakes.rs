//! Mistakes that tests make on purpose, to see that the simulated disk catches them. Each thread has its own.

/// Makes a call, unless a test makes the mistake of leaving it out.
macro_rules! unless {
    ($mistake:ident, $call:expr) => {
        #[cfg(test)]
        let is_made = crate::mistakes::is_made(crate::mistakes::Mistake::$mistake);
        #[cfg(not(test))]
        let is_made = false;
        if !is_made {
            $call;
        }
    };
}
pub(crate) use unless;

#[cfg(test)]
pub(crate) use planted::{Mistake, is_made, making};

#[cfg(test)]
mod planted {
    use std::cell::Cell;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Mistake {
        /// Checksums are not looked at.
        ChecksumIgnored,
        /// A write is shown to readers before its fsync.
        PublishedBeforeSync,
        /// The last log is not synced when a store is opened.
        NoLogSyncAtOpen,
        /// The names are not synced when a store is opened.
        NoNameSyncAtOpen,
        /// A frame is not synced.
        NoFrameSync,
        /// The header of a new log is not synced.
        NoHeaderSync,
        /// The name of a new log is not synced.
        NoLogNameSync,
        /// What a failed append has written is not cut off.
        NoCut,
        /// The cut of a failed append is not synced.
        NoCutSync,
        /// The end of a log is not synced before the next log has a frame.
        NoEndSync,
        /// A snapshot is not synced before it gets its name.
        NoSnapshotSync,
        /// The name of a snapshot is not synced before the old files are removed.
        NoSnapshotNameSync,
    }

    impl Mistake {
        /// Each fsync that may be left out. Those of cuts are not here: that at open needs none, because the next frame's fsync covers
        /// it, and a torn frame stays invalid until then; that of a failed append shows only if an append fails.
        pub(crate) const MISSING_SYNCS: [Self; 8] = [
            Self::NoEndSync,
            Self::NoLogSyncAtOpen,
            Self::NoNameSyncAtOpen,
            Self::NoFrameSync,
            Self::NoHeaderSync,
            Self::NoLogNameSync,
            Self::NoSnapshotSync,
            Self::NoSnapshotNameSync,
        ];
    }

    thread_local! {
        static CURRENT: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    /// Whether this thread makes the mistake.
    pub(crate) fn is_made(mistake: Mistake) -> bool {
        CURRENT.get() == Some(mistake)
    }

    /// Makes a mistake while `run` runs.
    pub(crate) fn making<T>(mistake: Mistake, run: impl FnOnce() -> T) -> T {
        CURRENT.set(Some(mistake));
        let result = run();
        CURRENT.set(None);
        result
    }
}
