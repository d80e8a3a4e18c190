//! A disk that does the worst POSIX allows, from a seed: for tests and the simulator.
//!
//! Until a sync, writes are only in its "page cache"; a crash keeps none of them, all, the first few with the last torn
//! at any byte, or each of their sectors as it was at some moment. The same goes for names until the directory is synced. A
//! failed sync drops what it should have written from the cache's duties: a later sync that succeeds does not bring it
//! back. A slow disk adds up delays as values; nothing sleeps.

use super::disk::{Disk, DiskFile};
use crate::units::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

const SECTOR: usize = 512;
const PAGE: u64 = 4_096;

/// What can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Allocating a file.
    Create,
    /// Writing: part of it may have been done.
    Write,
    /// Making writes durable.
    Sync,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
    /// Making names durable.
    SyncDir,
    /// Cutting a file.
    Truncate,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct FaultyDisk {
    world: Arc<Mutex<World>>,
}

/// As long as it lives, nothing comes back from the disk.
pub struct Hang<'a> {
    _world: MutexGuard<'a, World>,
}

/// A file of it. Of no use after a crash.
pub struct FaultyFile {
    world: Arc<Mutex<World>>,
    inode: usize,
    life: u64,
}

enum Change {
    Write(u64, Vec<u8>),
    Cut(u64),
}

#[derive(Default)]
struct Inode {
    /// As the process sees it.
    now: Vec<u8>,
    /// As it is on the platter.
    durable: Vec<u8>,
    /// Changes since the last sync.
    waiting: Vec<Change>,
    /// Changes that a failed sync dropped.
    dropped: Vec<Change>,
    /// Pages that cannot be read.
    bad_pages: BTreeSet<u64>,
}

enum NameChange {
    Link(PathBuf, usize),
    Unlink(PathBuf, usize),
    Rename(PathBuf, PathBuf, usize),
}

struct World {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    waiting_names: Vec<NameChange>,
    capacity: u64,
    luck: u64,
    /// Likelihood of a failure, in 65,536ths.
    likelihood: BTreeMap<Operation, u32>,
    /// Failures that are certain to come next.
    certain: BTreeMap<Operation, u32>,
    counts: BTreeMap<Operation, u64>,
    delay_each: Nanos,
    delay: Nanos,
    life: u64,
    /// Operations until the process or the machine dies in one.
    to_death: u64,
}

/// How an operation goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// As it should.
    Done,
    /// It fails, and may have been done in part.
    Fails,
    /// Whoever asked for it is dead: nothing happens.
    Dead,
}

impl World {
    /// SplitMix64.
    fn bits(&mut self) -> u64 {
        self.luck = self.luck.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.luck;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (((self.bits() >> 32) * bound as u64) >> 32) as usize
    }

    fn begin(&mut self, operation: Operation) -> Fate {
        match self.to_death {
            0 => return Fate::Dead,
            u64::MAX => {}
            _ => self.to_death -= 1,
        }
        *self.counts.entry(operation).or_default() += 1;
        self.delay = self.delay + self.delay_each;
        if let Some(left) = self.certain.get_mut(&operation).filter(|left| **left > 0) {
            *left -= 1;
            return Fate::Fails;
        }
        let likelihood = self.likelihood.get(&operation).copied().unwrap_or(0);
        let fails = likelihood > 0 && (self.bits() >> 48) < u64::from(likelihood);
        if fails || self.to_death == 0 { Fate::Fails } else { Fate::Done }
    }

    fn used(&self) -> u64 {
        self.names.values().map(|&inode| self.inodes[inode].now.len() as u64).sum()
    }

    fn fits(&self, more: u64) -> io::Result<()> {
        if self.used() + more > self.capacity { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn change(&mut self, inode: usize, change: Change) {
        apply(&mut self.inodes[inode].now, &change);
        self.inodes[inode].waiting.push(change);
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(at, bytes) => {
            let end = *at as usize + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*at as usize..end].copy_from_slice(bytes);
        }
        Change::Cut(length) => content.resize(*length as usize, 0),
    }
}

/// A write, sector by sector.
fn sectors(at: u64, bytes: &[u8]) -> impl Iterator<Item = (usize, Change)> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        let place = at as usize + from;
        let to = ((place / SECTOR + 1) * SECTOR - at as usize).min(bytes.len());
        let part = (from < to).then(|| (place / SECTOR, Change::Write(place as u64, bytes[from..to].to_vec())));
        from = to;
        part
    })
}

fn failure() -> io::Error {
    io::Error::from_raw_os_error(5) // EIO
}

impl FaultyDisk {
    /// An empty disk without faults, of boundless capacity.
    #[must_use]
    pub fn new(seed: u64) -> FaultyDisk {
        let world = World {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            waiting_names: Vec::new(),
            capacity: u64::MAX / 2,
            luck: seed,
            likelihood: BTreeMap::new(),
            certain: BTreeMap::new(),
            counts: BTreeMap::new(),
            delay_each: Nanos(0),
            delay: Nanos(0),
            life: 0,
            to_death: u64::MAX,
        };
        FaultyDisk { world: Arc::new(Mutex::new(world)) }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no test panics inside the disk")
    }

    /// Bytes that all files together may have from now on.
    pub fn set_capacity(&self, bytes: u64) {
        self.world().capacity = bytes;
    }

    /// Bytes that all files have.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.world().used()
    }

    /// How likely an operation fails, in 65,536ths.
    pub fn set_likelihood(&self, operation: Operation, of_65536: u32) {
        self.world().likelihood.insert(operation, of_65536);
    }

    /// The next so many operations of this kind fail.
    pub fn fail_next(&self, operation: Operation, times: u32) {
        self.world().certain.insert(operation, times);
    }

    /// All faults end.
    pub fn heal(&self) {
        let mut world = self.world();
        world.likelihood.clear();
        world.certain.clear();
    }

    /// How often an operation was asked for.
    #[must_use]
    pub fn count(&self, operation: Operation) -> u64 {
        self.world().counts.get(&operation).copied().unwrap_or(0)
    }

    /// Every operation hangs, whoever asks for it, until the answer is dropped.
    #[must_use]
    pub fn hang(&self) -> Hang<'_> {
        Hang { _world: self.world() }
    }

    /// Each operation takes this long from now on.
    pub fn set_delay(&self, each: Nanos) {
        self.world().delay_each = each;
    }

    /// What all operations took since the last call.
    #[must_use]
    pub fn take_delay(&self) -> Nanos {
        std::mem::take(&mut self.world().delay)
    }

    /// Whoever uses the disk dies in the last of the next so many operations: that one fails, perhaps half done, and none
    /// after it does anything. `u64::MAX`: nobody dies. [`FaultyDisk::crash`] or [`FaultyDisk::end_process`] comes next.
    pub fn die_after(&self, operations: u64) {
        self.world().to_death = operations;
    }

    /// Whether that has happened.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.world().to_death == 0
    }

    /// Whether it will.
    #[must_use]
    pub fn dies(&self) -> bool {
        self.world().to_death != u64::MAX
    }

    /// The machine dies and comes back: of what was not synced, luck decides.
    pub fn crash(&self) {
        let mut world = self.world();
        let world = &mut *world;
        world.to_death = u64::MAX;
        for inode in 0..world.inodes.len() {
            let mut changes = std::mem::take(&mut world.inodes[inode].dropped);
            changes.append(&mut world.inodes[inode].waiting);
            let mut durable = std::mem::take(&mut world.inodes[inode].durable);
            match world.below(4) {
                0 => {}
                1 => changes.iter().for_each(|change| apply(&mut durable, change)),
                2 => {
                    let whole = world.below(changes.len() + 1);
                    changes[..whole].iter().for_each(|change| apply(&mut durable, change));
                    if let Some(Change::Write(at, bytes)) = changes.get(whole) {
                        let kept = world.below(bytes.len() + 1);
                        apply(&mut durable, &Change::Write(*at, bytes[..kept].to_vec()));
                    }
                }
                _ => {
                    // Each sector is as some moment left it: what was written to it first is there if the rest is.
                    let mut touched = BTreeMap::<usize, usize>::new();
                    for change in &changes {
                        if let Change::Write(at, bytes) = change {
                            for (sector, _) in sectors(*at, bytes) {
                                *touched.entry(sector).or_default() += 1;
                            }
                        }
                    }
                    let mut left: BTreeMap<usize, usize> =
                        touched.into_iter().map(|(sector, times)| (sector, world.below(times + 1))).collect();
                    for change in &changes {
                        match change {
                            Change::Cut(_) => {
                                if world.below(2) == 0 {
                                    apply(&mut durable, change);
                                }
                            }
                            Change::Write(at, bytes) => {
                                for (sector, part) in sectors(*at, bytes) {
                                    let left = left.get_mut(&sector).expect("counted above");
                                    if *left > 0 {
                                        *left -= 1;
                                        apply(&mut durable, &part);
                                    }
                                }
                            }
                        }
                    }
                }
            }
            world.inodes[inode].now.clone_from(&durable);
            world.inodes[inode].durable = durable;
        }
        let changes = std::mem::take(&mut world.waiting_names);
        let mode = world.below(3);
        for change in changes {
            if mode == 0 || (mode == 1 && world.below(2) == 0) {
                continue;
            }
            match change {
                NameChange::Link(path, inode) => {
                    world.durable_names.insert(path, inode);
                }
                NameChange::Unlink(path, inode) => {
                    if world.durable_names.get(&path) == Some(&inode) {
                        world.durable_names.remove(&path);
                    }
                }
                NameChange::Rename(from, to, inode) => {
                    if world.durable_names.get(&from) == Some(&inode) {
                        world.durable_names.remove(&from);
                    }
                    world.durable_names.insert(to, inode);
                }
            }
        }
        world.names.clone_from(&world.durable_names);
        world.life += 1;
    }

    /// The process dies, the machine does not: what was written is there.
    pub fn end_process(&self) {
        let mut world = self.world();
        world.to_death = u64::MAX;
        world.life += 1;
    }

    /// The names of all files, with their lengths.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let world = self.world();
        world.names.iter().map(|(path, &inode)| (path.clone(), world.inodes[inode].now.len() as u64)).collect()
    }

    /// A file's bytes.
    ///
    /// # Panics
    /// If it is not there.
    #[must_use]
    pub fn content(&self, path: &Path) -> Vec<u8> {
        let world = self.world();
        world.inodes[world.names[path]].now.clone()
    }

    /// Puts a file there, durably, or replaces it.
    pub fn put(&self, path: &Path, content: Vec<u8>) {
        let mut world = self.world();
        let inode = world.inodes.len();
        world.inodes.push(Inode { now: content.clone(), durable: content, ..Inode::default() });
        world.names.insert(path.to_path_buf(), inode);
        world.durable_names.insert(path.to_path_buf(), inode);
    }

    /// Rot: bits of one byte turn.
    pub fn flip(&self, path: &Path, at: u64, mask: u8) {
        let mut content = self.content(path);
        content[at as usize] ^= mask;
        let mut world = self.world();
        let inode = world.names[path];
        world.inodes[inode].now.clone_from(&content);
        world.inodes[inode].durable = content;
    }

    /// The page that holds this byte cannot be read any more.
    pub fn spoil(&self, path: &Path, at: u64) {
        let mut world = self.world();
        let inode = world.names[path];
        world.inodes[inode].bad_pages.insert(at / PAGE);
    }
}

impl Disk for FaultyDisk {
    type File = FaultyFile;

    fn make_dir(&mut self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&mut self, dir: &Path) -> io::Result<Vec<String>> {
        let world = self.world();
        let inside = world.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| path.file_name()?.to_str().map(str::to_string)).collect())
    }

    fn create(&mut self, path: &Path, bytes: u64) -> io::Result<FaultyFile> {
        let mut world = self.world();
        if world.begin(Operation::Create) != Fate::Done {
            return Err(failure());
        }
        if world.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        world.fits(bytes)?;
        let inode = world.inodes.len();
        world.inodes.push(Inode::default());
        world.change(inode, Change::Cut(bytes));
        world.names.insert(path.to_path_buf(), inode);
        world.waiting_names.push(NameChange::Link(path.to_path_buf(), inode));
        Ok(FaultyFile { world: Arc::clone(&self.world), inode, life: world.life })
    }

    fn open(&mut self, path: &Path, _: bool) -> io::Result<FaultyFile> {
        let world = self.world();
        let inode = *world.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(FaultyFile { world: Arc::clone(&self.world), inode, life: world.life })
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world();
        if world.begin(Operation::Rename) != Fate::Done {
            return Err(failure());
        }
        let inode = world.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        world.names.insert(to.to_path_buf(), inode);
        world.waiting_names.push(NameChange::Rename(from.to_path_buf(), to.to_path_buf(), inode));
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        if world.begin(Operation::Remove) != Fate::Done {
            return Err(failure());
        }
        let inode = world.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        world.waiting_names.push(NameChange::Unlink(path.to_path_buf(), inode));
        Ok(())
    }

    fn sync_dir(&mut self, _: &Path) -> io::Result<()> {
        let mut world = self.world();
        if world.begin(Operation::SyncDir) != Fate::Done {
            return Err(failure());
        }
        world.durable_names = world.names.clone();
        world.waiting_names.clear();
        Ok(())
    }
}

impl FaultyFile {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.world.lock().expect("no test panics inside the disk");
        if world.life == self.life { Ok(world) } else { Err(failure()) }
    }
}

impl DiskFile for FaultyFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.world()?.inodes[self.inode].now.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let world = self.world()?;
        let inode = &world.inodes[self.inode];
        let start = (offset as usize).min(inode.now.len());
        let length = into.len().min(inode.now.len() - start);
        if inode.bad_pages.range(offset / PAGE..).next().is_some_and(|&page| page * PAGE < offset + length as u64) {
            return Err(failure());
        }
        into[..length].copy_from_slice(&inode.now[start..start + length]);
        Ok(length)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut world = self.world()?;
        match world.begin(Operation::Write) {
            Fate::Done => {}
            Fate::Dead => return Err(failure()),
            Fate::Fails => {
                let done = world.below(bytes.len() + 1);
                world.change(self.inode, Change::Write(offset, bytes[..done].to_vec()));
                return Err(failure());
            }
        }
        let end = offset + bytes.len() as u64;
        world.fits(end.saturating_sub(world.inodes[self.inode].now.len() as u64))?;
        world.change(self.inode, Change::Write(offset, bytes.to_vec()));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut world = self.world()?;
        let fate = world.begin(Operation::Sync);
        let inode = &mut world.inodes[self.inode];
        if fate != Fate::Done {
            if fate == Fate::Fails {
                inode.dropped.append(&mut inode.waiting);
            }
            return Err(failure());
        }
        for change in inode.waiting.drain(..) {
            apply(&mut inode.durable, &change);
        }
        Ok(())
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        let mut world = self.world()?;
        if world.begin(Operation::Truncate) != Fate::Done {
            return Err(failure());
        }
        world.change(self.inode, Change::Cut(bytes));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(disk: &mut FaultyDisk, name: &str, content: &[u8]) -> FaultyFile {
        let mut file = disk.create(Path::new(name), 0).unwrap();
        file.write_at(content, 0).unwrap();
        file
    }

    #[test]
    fn what_was_synced_is_there_after_any_crash() {
        for seed in 0..200 {
            let mut disk = FaultyDisk::new(seed);
            let mut file = write(&mut disk, "d/a", &[7; 3_000]);
            file.sync().unwrap();
            disk.sync_dir(Path::new("d")).unwrap();
            file.write_at(&[8; 3_000], 3_000).unwrap();
            disk.crash();
            assert_eq!(disk.content(Path::new("d/a"))[..3_000], [7; 3_000], "seed {seed}");
            assert!(file.sync().is_err(), "the handle died with its process");
        }
    }

    #[test]
    fn what_was_not_synced_may_be_lost_torn_or_out_of_order() {
        let (mut lost, mut torn, mut out_of_order, mut whole, mut nameless) = (0, 0, 0, 0, 0);
        for seed in 0..400 {
            let mut disk = FaultyDisk::new(seed);
            let mut file = write(&mut disk, "d/a", b"");
            file.sync().unwrap();
            if seed % 2 == 0 {
                disk.sync_dir(Path::new("d")).unwrap();
            }
            file.write_at(&[9; 4_096], 0).unwrap();
            disk.crash();
            if disk.files().is_empty() {
                assert_eq!(seed % 2, 1, "a synced name stays");
                nameless += 1;
                continue;
            }
            let content = disk.content(Path::new("d/a"));
            match content.iter().position(|&byte| byte == 0) {
                _ if content.is_empty() => lost += 1,
                None if content.len() == 4_096 => whole += 1,
                None => torn += 1,
                Some(_) => out_of_order += 1,
            }
        }
        assert!([lost, torn, out_of_order, whole, nameless].iter().all(|&count| count > 10));
    }

    #[test]
    fn a_failed_sync_is_not_mended_by_a_good_one() {
        let mut gone = 0;
        for seed in 0..100 {
            let mut disk = FaultyDisk::new(seed);
            let mut file = write(&mut disk, "d/a", b"");
            disk.sync_dir(Path::new("d")).unwrap();
            file.write_at(b"first", 0).unwrap();
            disk.fail_next(Operation::Sync, 1);
            assert!(file.sync().is_err());
            file.sync().unwrap();
            disk.crash();
            gone += u32::from(disk.content(Path::new("d/a")) != b"first");
        }
        assert!(gone > 20, "{gone} of 100");
    }

    #[test]
    fn a_slow_disk_adds_up_and_a_full_one_says_so() {
        let mut disk = FaultyDisk::new(1);
        disk.set_delay(Nanos::from_millis(3));
        let mut file = write(&mut disk, "d/a", b"four");
        file.sync().unwrap();
        assert_eq!(disk.take_delay(), Nanos::from_millis(9));
        disk.set_capacity(8);
        assert_eq!(file.write_at(b"12345", 4).unwrap_err().kind(), io::ErrorKind::StorageFull);
        file.write_at(b"1234", 4).unwrap();
        assert!(super::super::disk::is_full(&disk.create(Path::new("d/b"), 1).err().unwrap()));
    }
}
