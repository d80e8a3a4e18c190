//! The disk as an argument: what the spill asks of a file system, and the real one.
//!
//! A disk promises what POSIX promises and no more: what was written is there after a crash only once `sync` returned;
//! a new name, or a renamed one, only once `sync_dir` did. After a `sync` that failed nothing is known about what was
//! written since the last good one, and asking again proves nothing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A file system.
pub trait Disk {
    /// An open file.
    type File: DiskFile;

    /// Makes the directory if it is not there.
    ///
    /// # Errors
    /// What the system says.
    fn make_dir(&mut self, dir: &Path) -> io::Result<()>;

    /// The names of the directory's files.
    ///
    /// # Errors
    /// What the system says.
    fn list(&mut self, dir: &Path) -> io::Result<Vec<String>>;

    /// A new file of `bytes` zeros, whose space is allocated: writing them later cannot fail for want of space.
    ///
    /// # Errors
    /// What the system says; the file is not there then.
    fn create(&mut self, path: &Path, bytes: u64) -> io::Result<Self::File>;

    /// A file that is there; to read only, or to write as well.
    ///
    /// # Errors
    /// What the system says.
    fn open(&mut self, path: &Path, to_write: bool) -> io::Result<Self::File>;

    /// Renames a file over nothing, within one directory.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&mut self, path: &Path) -> io::Result<()>;

    /// Makes the names of the directory durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&mut self, dir: &Path) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile {
    /// Its length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn bytes(&self) -> io::Result<u64>;

    /// Reads from `offset`; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// What the system says; part of it may have been written.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// What the system says; never to be asked again for the same writes.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts the file off.
    ///
    /// # Errors
    /// What the system says.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;
}

/// Whether the system says that there is no space left: of the volume, of a quota, or for a file of this process.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// Zeros, for file systems that cannot allocate without writing.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            let mut at = 0;
            while at < bytes {
                let length = (bytes - at).min(ZEROS.len() as u64);
                file.write_all_at(&ZEROS[..length as usize], at)?;
                at += length;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

impl Disk for RealDisk {
    type File = File;

    fn make_dir(&mut self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(dir)?;
        // The directory's own name is durable once its parent is.
        match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
            _ => Ok(()),
        }
    }

    fn list(&mut self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // A name that is not text is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&mut self, path: &Path, bytes: u64) -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        if let Err(error) = allocate(&file, bytes) {
            // The caller learns the first error; a file that stays is an unfinished one, which the next start removes.
            return fs::remove_file(path).map_or_else(Err, |()| Err(error));
        }
        Ok(file)
    }

    fn open(&mut self, path: &Path, to_write: bool) -> io::Result<File> {
        OpenOptions::new().read(true).write(to_write).open(path)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

impl DiskFile for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut got = 0;
        while got < into.len() {
            match FileExt::read_at(self, &mut into[got..], offset + got as u64) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(got)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}
