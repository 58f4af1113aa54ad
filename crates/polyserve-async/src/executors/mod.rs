//! Executors on async runtimes: a job is a task that does not yield.
