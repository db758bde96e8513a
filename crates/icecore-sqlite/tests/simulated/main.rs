//! SQLite on a simulated disk: generated histories of SQL with a crash at every I/O and a fault at every
//! call, on full disks, over attached files. The same statements on a database in memory say what has to be
//! found.

mod crashes;
mod faults;
mod full;
mod history;
mod life;
