//! The cost of one flush on this disk.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::Path,
    time::Instant,
};

use crate::support::quantile;

const RECORD: [u8; 400] = [b'x'; 400];

/// Samples in microseconds.
#[derive(Default)]
pub(crate) struct Floors {
    append: Vec<f64>,
    in_place: Vec<f64>,
}

impl Floors {
    /// Makes so many flushes of a file of its own in `folder`, in both ways.
    pub(crate) fn measure(&mut self, folder: &Path, flushes: usize) {
        let path = folder.join("flush-floor");
        let mut file = File::create(&path).expect("the state folder takes files");
        for _ in 0..flushes {
            let begin = Instant::now();
            file.write_all(&RECORD).and_then(|()| file.sync_data()).expect("the disk takes writes");
            self.append.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        let zeros = vec![0; RECORD.len() * flushes];
        file.write_all_at(&zeros, 0).and_then(|()| file.sync_all()).expect("the disk takes writes");
        for index in 0..flushes {
            let at = (index * RECORD.len()) as u64;
            let begin = Instant::now();
            file.write_all_at(&RECORD, at).and_then(|()| file.sync_data()).expect("the disk takes writes");
            self.in_place.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        fs::remove_file(&path).expect("the file was just made");
    }

    /// The median of a flush of existing blocks, as in a preallocated journal.
    pub(crate) fn in_place(&self) -> f64 {
        quantile(&self.in_place, 0.5)
    }

    pub(crate) fn print(&self) {
        println!(
            "flush floor, p50: append and fdatasync {:.0} us, fdatasync of a preallocated file {:.0} us",
            quantile(&self.append, 0.5),
            self.in_place()
        );
    }
}
