//! A folder of results.
//!
//! | file | content |
//! |---|---|
//! | `results.jsonl` | a line for each run, in the order of the plan; written when all are done |
//! | `results.I-of-N.jsonl` | the same of a shard |
//! | `*.journal` | lines as runs end, while they are at work; a stopped one is taken up again |
//! | `manifest.json` | what was run: the plan, its digest, seed, version, and the digest of the results |
//!
//! Lines are found by their keys, so that the file of a line does not matter, and no run is executed twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use headwater_netsim::plan::Plan;
use serde::Deserialize;

use super::work::Job;
use crate::args::Shard;
use headwater_cli::exit::{Exit, Failure};

/// Consumer of lines of results.
pub type Take<'a> = dyn FnMut(&str) -> Result<(), Failure> + 'a;

/// An open folder.
pub struct Results {
    folder: PathBuf,
    /// `results` or `results.I-of-N`.
    stem: String,
    is_whole: bool,
    journal: File,
    journal_end: u64,
    files: Vec<PathBuf>,
    lines: BTreeMap<String, Line>,
}

/// Location of a line.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Index into `files`.
    file: usize,
    at: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct Keyed {
    key: String,
}

impl Results {
    /// Opens a folder, creating the folder if necessary. `all` are the runs of the plan.
    pub fn open(folder: &Path, shard: Option<Shard>, all: &[Job]) -> Result<Self, Failure> {
        Self::try_open(folder, shard, all).map_err(|error| Failure {
            exit: Exit::Disk,
            error: error.context(format!("cannot keep results in '{}'", folder.display())),
        })
    }

    fn try_open(folder: &Path, shard: Option<Shard>, all: &[Job]) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let stem = shard
            .map_or_else(|| "results".into(), |shard| format!("results.{}-of-{}", shard.index, shard.count));
        let path = folder.join(format!("{stem}.journal"));
        let journal = open_journal(&path)?;
        let journal_end = journal.metadata()?.len();
        let is_whole = shard.is_none();
        let mut results = Self {
            folder: folder.into(),
            stem,
            is_whole,
            journal,
            journal_end,
            files: vec![path],
            lines: BTreeMap::new(),
        };
        results.index(0)?;
        for path in other_files(folder, &results.files[0])? {
            results.files.push(path);
            results.index(results.files.len() - 1)?;
        }
        results.refuse_strangers(all)?;
        Ok(results)
    }

    /// Whether the run of this key has a result.
    pub fn has(&self, key: &str) -> bool {
        self.lines.contains_key(key)
    }

    /// Keeps a result: on disk before this returns, as far as the system is concerned.
    pub fn add(&mut self, key: &str, line: &str) -> Result<(), Failure> {
        let written = self.journal.write_all(format!("{line}\n").as_bytes());
        written.map_err(|error| Failure {
            exit: Exit::Disk,
            error: anyhow::Error::from(error).context(format!("cannot write '{}'", self.files[0].display())),
        })?;
        let bytes = line.len() as u64;
        self.lines.insert(key.into(), Line { file: 0, at: self.journal_end, bytes });
        self.journal_end += bytes + 1;
        Ok(())
    }

    /// Passes the results of `keys` to `take`, in that order. When all results are present, also writes the
    /// results in that order into a single file, with the manifest.
    pub fn finish(mut self, plan: &Plan, keys: &[&str], take: &mut Take<'_>) -> Result<(), Failure> {
        self.try_finish(plan, keys, take).map_err(|error| Failure {
            exit: Exit::Disk,
            error: error.context(format!("cannot write the results in '{}'", self.folder.display())),
        })
    }

    fn try_finish(&mut self, plan: &Plan, keys: &[&str], take: &mut Take<'_>) -> anyhow::Result<()> {
        let is_complete = keys.iter().all(|key| self.has(key));
        let target = self.folder.join(format!("{}.jsonl", self.stem));
        let draft = self.folder.join(format!("{}.jsonl.tmp", self.stem));
        let mut files = self.files.iter().map(File::open).collect::<Result<Vec<_>, _>>()?;
        let mut out = if is_complete { Some(BufWriter::new(File::create(&draft)?)) } else { None };
        let mut digest = blake3::Hasher::new();
        for line in keys.iter().filter_map(|key| self.lines.get(*key)) {
            let text = read_line(&mut files[line.file], *line)?;
            take(&text).map_err(|failure| failure.error)?;
            if let Some(out) = &mut out {
                writeln!(out, "{text}")?;
                digest.update(text.as_bytes()).update(b"\n");
            }
        }
        if let Some(out) = out {
            out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
            if self.is_whole {
                self.write_manifest(plan, keys.len(), &digest.finalize().to_hex())?;
            }
            fs::rename(&draft, &target)?;
            fs::remove_file(&self.files[0])?;
        }
        Ok(())
    }

    fn write_manifest(&self, plan: &Plan, runs: usize, digest: &str) -> anyhow::Result<()> {
        let manifest = serde_json::json!({
            "plan": plan.name(),
            "title": plan.title(),
            "plan_digest": plan.digest().to_string(),
            "version": env!("CARGO_PKG_VERSION"),
            "seed": plan.seed().0,
            "runs_of_a_cell": plan.runs(),
            "cells": plan.cells(),
            "swept": plan.swept(),
            "parameters": plan.parameters(),
            "results": runs,
            "results_blake3": digest,
        });
        let text = serde_json::to_string_pretty(&manifest)?;
        let draft = self.folder.join("manifest.json.tmp");
        fs::write(&draft, format!("{text}\n"))?;
        Ok(fs::rename(draft, self.folder.join("manifest.json"))?)
    }

    /// Finds the lines of a file.
    fn index(&mut self, file: usize) -> anyhow::Result<()> {
        let path = &self.files[file];
        let mut reader = BufReader::new(File::open(path)?);
        let (mut at, mut line) = (0, String::new());
        while reader.read_line(&mut line)? > 0 {
            let keyed: Keyed = serde_json::from_str(&line).with_context(|| {
                format!("'{}' has a line that is no result; remove the file to run it anew", path.display())
            })?;
            let bytes = line.trim_end_matches('\n').len() as u64;
            self.lines.insert(keyed.key, Line { file, at, bytes });
            at += line.len() as u64;
            line.clear();
        }
        Ok(())
    }

    /// Refuses results of another plan in the folder, which rewriting the file would lose.
    fn refuse_strangers(&self, all: &[Job]) -> anyhow::Result<()> {
        let known: BTreeSet<&str> = all.iter().map(|job| job.key.as_str()).collect();
        let strangers = self.lines.keys().filter(|key| !known.contains(key.as_str())).count();
        if strangers > 0 {
            anyhow::bail!(
                "{strangers} of {} results there are not of this plan, seed and version; choose another folder, or \
                 remove them",
                self.lines.len()
            );
        }
        Ok(())
    }
}

/// Opens a file for appending lines, creating the file if necessary. The lock keeps other processes from
/// appending.
pub fn open_journal(path: &Path) -> anyhow::Result<File> {
    let named = || format!("'{}'", path.display());
    let journal = File::options().read(true).append(true).create(true).open(path).with_context(named)?;
    if journal.try_lock().is_err() {
        anyhow::bail!(
            "another headwater is at work there ({}); wait for it, or choose another folder",
            named()
        );
    }
    mend(&journal).with_context(named)?;
    Ok(journal)
}

/// Cuts off an incomplete last line.
fn mend(journal: &File) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let mut reader = journal;
    reader.seek(SeekFrom::Start(0))?;
    let mut whole = 0;
    let mut reader = BufReader::new(reader);
    while reader.read_until(b'\n', &mut bytes)? > 0 {
        if bytes.ends_with(b"\n") {
            whole += bytes.len() as u64;
        }
        bytes.clear();
    }
    journal.set_len(whole)
}

/// Files with results in the folder, other than `own`.
fn other_files(folder: &Path, own: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if name.starts_with("results") && name.ends_with(".jsonl") && path != own {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read_line(file: &mut File, line: Line) -> anyhow::Result<String> {
    file.seek(SeekFrom::Start(line.at))?;
    let mut text = String::new();
    file.take(line.bytes).read_to_string(&mut text)?;
    Ok(text)
}
