//! Several processes of one machine: the store in a directory, compared with file locks, with
//! tables of SQLite, and with the same recipes on a server.
//!
//! Each process repeats its lap for a given time, and prints how long each took. Laps of locks also
//! add one to a number in a file, so that a lock that lets two in is noticed.

mod contest;
mod files;
mod job;
mod lap;
mod recipes;
mod serve;
mod sqlite;

pub use contest::{Contest, Row, table};
pub use job::{Job, Rival};
pub use serve::serve;
