//! Which files a list of globs stands for.

use super::SourceError;
use globset::{Glob, GlobBuilder, GlobMatcher};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// Longest glob in bytes: what Linux takes as a path.
const MAX_GLOB_BYTES: usize = 4096;

/// Ways in which the braces of a glob may be spelled out.
const MAX_WAYS: usize = 4096;

/// Characters of a glob that an error shows.
const SHOWN_CHARACTERS: usize = 200;

/// A file of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Where it is.
    pub path: PathBuf,
    /// The path below the globs' fixed part, parts joined by `/`. Unique among the files of one
    /// list of globs; part of derived ids.
    pub name: String,
    /// Its size in bytes, as it lies on disk.
    pub bytes: u64,
    /// When it was last written, where the system tells. Compared for equality alone, so a clock that jumps does
    /// no harm.
    pub modified: Option<SystemTime>,
}

impl FoundFile {
    /// A file by its path, named as its file name.
    ///
    /// # Errors
    /// When there is no such file, it is none, or its name is not UTF-8.
    pub fn at(path: &Path) -> Result<FoundFile, SourceError> {
        let failed = |source| SourceError::Read {
            path: path.to_path_buf(),
            source,
        };
        let metadata = fs::metadata(path).map_err(failed)?;
        // A pipe or a device may never end.
        if !metadata.is_file() {
            let text = "it is a folder, a pipe or a device; name a file";
            return Err(failed(std::io::Error::new(ErrorKind::InvalidInput, text)));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        Ok(FoundFile {
            path: path.to_path_buf(),
            name: name
                .map(str::to_string)
                .ok_or_else(|| SourceError::NameNotUtf8 {
                    path: path.to_path_buf(),
                })?,
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }

    /// Proves that the file is the one that was found: of the same size, and not written since. What was read of it
    /// between two such looks is of one version.
    ///
    /// # Errors
    /// When it is another one, or gone.
    pub fn unchanged(&self) -> Result<(), SourceError> {
        match fs::metadata(&self.path) {
            Ok(now) => self.unchanged_by(&now),
            Err(source) => Err(SourceError::Read {
                path: self.path.clone(),
                source,
            }),
        }
    }

    /// The same, of a file that has been looked at.
    pub(super) fn unchanged_by(&self, now: &fs::Metadata) -> Result<(), SourceError> {
        let changed = |what: String| SourceError::Changed {
            path: self.path.clone(),
            what,
        };
        if now.len() != self.bytes {
            let bytes = now.len();
            return Err(changed(format!(
                "had {} bytes when it was found and now has {bytes}",
                self.bytes
            )));
        }
        if now.modified().ok() != self.modified {
            return Err(changed("was written to after it was found".to_string()));
        }
        Ok(())
    }
}

/// The scheme of a path that is not of this machine: `s3`, `gs`, `az`, `http` or `https`.
///
/// ```
/// use goodput::source::remote_scheme;
/// assert_eq!(remote_scheme("s3://bucket/a.jsonl"), Some("s3"));
/// assert_eq!(remote_scheme("data/a.jsonl"), None);
/// ```
pub fn remote_scheme(glob: &str) -> Option<&'static str> {
    let glob = glob.strip_prefix('!').unwrap_or(glob);
    ["s3", "gs", "az", "http", "https"]
        .into_iter()
        .find(|scheme| {
            glob.get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
                && glob[scheme.len()..].starts_with("://")
        })
}

/// The files that match any of `globs` and none of those that begin with `!`, by name, then path.
///
/// Globs are relative to `base`, or absolute. `*`, `?`, `[…]` and `{a,b}` stay inside one part of
/// a path, `**` stands for any number of folders. A `\` takes the next character literally; a path
/// that exists as written is always itself. Hidden files and folders are found only where the
/// glob's own part begins with a dot. `!` globs exclude the files that they match, hidden or not,
/// those below a folder that they name without wildcards, and, when they have no `/`, files of
/// matching names anywhere. Links are followed; folders, dangling links and special files are
/// skipped. A file that is reached in two ways is found once, under its first name.
///
/// A file's name is its path below the fixed part of the glob: the folders before the first
/// wildcard, and of several globs the fixed part that they have in common, so that two files never
/// share a name.
///
/// # Errors
/// When a glob is malformed, matches no file, or all its files are excluded; when a folder cannot
/// be read; when a file's name is not UTF-8.
pub fn find_files(base: &Path, globs: &[String]) -> Result<Vec<FoundFile>, SourceError> {
    let mut includes = Vec::new();
    let mut excludes = Vec::new();
    for glob in globs {
        match glob.strip_prefix('!') {
            Some(excluded) => excludes.push(Exclude::new(base, excluded, glob)?),
            None => includes.push(Include::new(base, glob)?),
        }
    }
    let none_left = |glob: &str| SourceError::NoFiles {
        glob: glob.to_string(),
        base: base.to_path_buf(),
    };
    let Some(first) = includes.first() else {
        return Err(none_left(globs.first().map_or("", String::as_str)));
    };
    let common = includes
        .iter()
        .fold(first.fixed.clone(), |common, include| {
            common
                .components()
                .zip(include.fixed.components())
                .take_while(|(a, b)| a == b)
                .map(|(a, _)| a)
                .collect()
        });

    let mut paths = BTreeSet::new();
    for include in &includes {
        let mut matched = Vec::new();
        for way in &include.ways {
            walk(&include.fixed, way, &mut matched)?;
        }
        if matched.is_empty() {
            return Err(none_left(&include.written));
        }
        paths.extend(matched);
    }

    let mut found = Vec::with_capacity(paths.len());
    for path in paths {
        if excludes.iter().any(|exclude| exclude.matches(&path)) {
            continue;
        }
        let below = path.strip_prefix(&common).unwrap_or(&path);
        let name = below
            .to_str()
            .ok_or_else(|| SourceError::NameNotUtf8 { path: path.clone() })?;
        let name = name.replace(std::path::MAIN_SEPARATOR, "/");
        let failed = |source| SourceError::Read {
            path: path.clone(),
            source,
        };
        let metadata = fs::metadata(&path).map_err(failed)?;
        let real = fs::canonicalize(&path).map_err(failed)?;
        let file = FoundFile {
            path,
            name,
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        };
        found.push((file, real));
    }
    if found.is_empty() {
        return Err(none_left(&globs.join("', '")));
    }
    found.sort_by(|(a, _), (b, _)| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
    let mut seen = BTreeSet::new();
    found.retain(|(_, real)| seen.insert(real.clone()));
    Ok(found.into_iter().map(|(file, _)| file).collect())
}

/// One part of a glob, between slashes.
#[derive(Clone, Debug)]
enum Part {
    Literal(String),
    /// `**`
    AnyFolders,
    Wild {
        matcher: GlobMatcher,
        hidden: bool,
    },
}

/// A glob with its fixed part walked to, and each way to spell out its braces.
struct Include {
    written: String,
    fixed: PathBuf,
    ways: Vec<Vec<Part>>,
}

impl Include {
    fn new(base: &Path, written: &str) -> Result<Include, SourceError> {
        let literal = lexical(&base.join(written));
        if literal.is_file()
            && let (Some(folder), Some(name)) = (literal.parent(), literal.file_name())
            && let Some(name) = name.to_str()
        {
            return Ok(Include {
                written: written.to_string(),
                fixed: folder.to_path_buf(),
                ways: vec![vec![Part::Literal(name.to_string())]],
            });
        }
        let (fixed, rest) = split_fixed(written);
        Ok(Include {
            written: written.to_string(),
            fixed: lexical(&base.join(fixed)),
            ways: parse(rest, written)?,
        })
    }
}

struct Exclude {
    fixed: PathBuf,
    ways: Vec<Vec<Part>>,
    /// The glob is a file name, wherever it stands.
    name_only: bool,
}

impl Exclude {
    fn new(base: &Path, glob: &str, written: &str) -> Result<Exclude, SourceError> {
        let (fixed, rest) = split_fixed(glob);
        let mut ways = parse(rest, written)?;
        // A folder named without wildcards stands for all that is in it.
        if lexical(&base.join(glob)).is_dir() {
            for way in &mut ways {
                way.push(Part::AnyFolders);
                way.push(wild("*", written)?);
            }
        }
        Ok(Exclude {
            fixed: lexical(&base.join(fixed)),
            ways,
            name_only: !glob.contains('/') && !base.join(glob).is_dir(),
        })
    }

    fn matches(&self, path: &Path) -> bool {
        let below = if self.name_only {
            path.file_name().map(Path::new)
        } else {
            path.strip_prefix(&self.fixed).ok()
        };
        let Some(below) = below.and_then(Path::to_str) else {
            return false;
        };
        let names: Vec<&str> = below.split(std::path::MAIN_SEPARATOR).collect();
        self.ways.iter().any(|way| matches_parts(way, &names))
    }
}

fn matches_parts(parts: &[Part], names: &[&str]) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((Part::AnyFolders, rest)), _) => {
            (0..names.len()).any(|taken| matches_parts(rest, &names[taken..]))
        }
        (Some((part, rest)), Some((name, deeper))) => {
            part_matches(part, name, true) && matches_parts(rest, deeper)
        }
        _ => false,
    }
}

fn part_matches(part: &Part, name: &str, hidden_too: bool) -> bool {
    match part {
        Part::Literal(literal) => literal == name,
        Part::AnyFolders => hidden_too || !name.starts_with('.'),
        Part::Wild { matcher, hidden } => {
            (hidden_too || *hidden || !name.starts_with('.')) && matcher.is_match(name)
        }
    }
}

/// Splits a glob after the last slash before its first wildcard; a glob without wildcards before
/// its last part.
fn split_fixed(glob: &str) -> (&str, &str) {
    let trimmed = glob.trim_end_matches('/');
    let glob = if trimmed.is_empty() { glob } else { trimmed };
    let wild = glob.find(is_wild).unwrap_or(glob.len());
    match glob[..wild].rfind('/') {
        Some(slash) => (&glob[..=slash], &glob[slash + 1..]),
        None => ("", glob),
    }
}

fn is_wild(character: char) -> bool {
    matches!(character, '*' | '?' | '[' | '{' | '\\')
}

fn parse(glob: &str, written: &str) -> Result<Vec<Vec<Part>>, SourceError> {
    let bad = |problem: String| SourceError::BadGlob {
        glob: written.chars().take(SHOWN_CHARACTERS).collect(),
        problem,
    };
    if glob.len() > MAX_GLOB_BYTES {
        return Err(bad(format!(
            "it has {} bytes, and a path has at most {MAX_GLOB_BYTES}",
            glob.len()
        )));
    }
    spelled_out(glob, &mut { MAX_WAYS })
        .map_err(bad)?
        .iter()
        .map(|way| {
            let mut parts = Vec::new();
            for part in way
                .split('/')
                .filter(|part| !part.is_empty() && *part != ".")
            {
                // Each more of them would only multiply the ways to the same files.
                if part == "**" && matches!(parts.last(), Some(Part::AnyFolders)) {
                    continue;
                }
                parts.push(match part {
                    "**" => Part::AnyFolders,
                    part if part.contains(is_wild) => wild(part, written)?,
                    part => Part::Literal(part.to_string()),
                });
            }
            if matches!(parts.last(), Some(Part::AnyFolders)) {
                parts.push(wild("*", written)?);
            }
            Ok(parts)
        })
        .collect()
}

fn wild(part: &str, written: &str) -> Result<Part, SourceError> {
    let bad = |error: globset::Error| SourceError::BadGlob {
        glob: written.to_string(),
        problem: error.kind().to_string(),
    };
    let glob: Glob = GlobBuilder::new(part)
        .backslash_escape(true)
        .build()
        .map_err(bad)?;
    Ok(Part::Wild {
        matcher: glob.compile_matcher(),
        hidden: part.starts_with('.') || part.starts_with("\\."),
    })
}

/// A glob for each choice of its `{a,b}`, which may hold slashes and be nested; at most so many as are
/// `left`.
fn spelled_out(glob: &str, left: &mut usize) -> Result<Vec<String>, String> {
    let bytes = glob.as_bytes();
    let mut depth = 0usize;
    let mut in_class = false;
    let mut open = 0;
    let mut cuts = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'[' if !in_class => in_class = true,
            b']' => in_class = false,
            b'{' if !in_class => {
                depth += 1;
                if depth == 1 {
                    open = at;
                    cuts = vec![at];
                }
            }
            b',' if !in_class && depth == 1 => cuts.push(at),
            b'}' if !in_class && depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    cuts.push(at);
                    let mut ways = Vec::new();
                    for bounds in cuts.windows(2) {
                        let choice = &glob[bounds[0] + 1..bounds[1]];
                        let way = format!("{}{choice}{}", &glob[..open], &glob[at + 1..]);
                        ways.extend(spelled_out(&way, left)?);
                    }
                    return Ok(ways);
                }
            }
            _ => {}
        }
        at += 1;
    }
    if depth > 0 {
        return Err("a '{' has no '}'".to_string());
    }
    *left = left.checked_sub(1).ok_or_else(|| {
        format!("its braces can be spelled out in more than {MAX_WAYS} ways; use '*', or a list of globs")
    })?;
    Ok(vec![glob.to_string()])
}

/// Files under `folder` that `parts` lead to.
fn walk(folder: &Path, parts: &[Part], matched: &mut Vec<PathBuf>) -> Result<(), SourceError> {
    let Some((part, rest)) = parts.split_first() else {
        return Ok(());
    };
    if let Part::Literal(name) = part {
        let path = folder.join(name);
        if rest.is_empty() {
            if is(&path, fs::Metadata::is_file)? {
                matched.push(path);
            }
            return Ok(());
        }
        return walk(&path, rest, matched);
    }
    if matches!(part, Part::AnyFolders) {
        walk(folder, rest, matched)?;
    }
    for name in names_in(folder)? {
        let path = folder.join(&name);
        // A name that is not UTF-8 still matches; the caller then refuses it by name.
        if !part_matches(part, &name.to_string_lossy(), false) {
            continue;
        }
        match part {
            Part::AnyFolders => {
                if is(&path, fs::Metadata::is_dir)? && !leads_back(&path) {
                    walk(&path, parts, matched)?;
                }
            }
            _ if rest.is_empty() => {
                if is(&path, fs::Metadata::is_file)? {
                    matched.push(path);
                }
            }
            _ => {
                if is(&path, fs::Metadata::is_dir)? {
                    walk(&path, rest, matched)?;
                }
            }
        }
    }
    Ok(())
}

/// What the system says of a link that leads to itself.
const LOOP: i32 = if cfg!(target_os = "linux") { 40 } else { 62 };

/// Whether there is such a thing. One that cannot be looked at is an error: without it the input would be another one.
fn is(path: &Path, kind: fn(&fs::Metadata) -> bool) -> Result<bool, SourceError> {
    match fs::metadata(path) {
        Ok(found) => Ok(kind(&found)),
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                || error.raw_os_error() == Some(LOOP) =>
        {
            Ok(false)
        }
        Err(source) => Err(SourceError::Read {
            path: path.to_path_buf(),
            source,
        }),
    }
}

fn names_in(folder: &Path) -> Result<Vec<std::ffi::OsString>, SourceError> {
    let failed = |source| SourceError::Read {
        path: folder.to_path_buf(),
        source,
    };
    let entries = match fs::read_dir(or_here(folder)) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(failed)?.file_name());
    }
    Ok(names)
}

/// The current folder where a path is empty: what a relative path has for its outermost one.
fn or_here(folder: &Path) -> &Path {
    match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    }
}

/// Whether a link leads to a folder that the walk to it has come through, which would never end.
fn leads_back(path: &Path) -> bool {
    if !path.is_symlink() {
        return false;
    }
    let Ok(target) = fs::canonicalize(path) else {
        return true;
    };
    path.ancestors()
        .skip(1)
        .any(|folder| fs::canonicalize(or_here(folder)).is_ok_and(|folder| folder == target))
}

/// The path without `.`, and without `x/..` where `x` is no link.
fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(out.components().next_back(), Some(Component::Normal(_)))
                    && !out.is_symlink() =>
            {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for path in paths {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
            fs::write(path, "x").expect("a file");
        }
        folder
    }

    fn names(base: &Path, globs: &[&str]) -> Result<Vec<String>, SourceError> {
        let globs: Vec<String> = globs.iter().map(|glob| glob.to_string()).collect();
        find_files(base, &globs).map(|found| found.into_iter().map(|file| file.name).collect())
    }

    #[track_caller]
    fn assert_names(base: &Path, globs: &[&str], expected: &[&str]) {
        assert_eq!(names(base, globs).expect("files"), expected, "{globs:?}");
    }

    #[test]
    fn names_are_below_the_fixed_part_and_sorted() {
        let t = tree(&[
            "data/web/b.jsonl",
            "data/web/a.jsonl",
            "data/web/x/c.jsonl",
            "z.jsonl",
        ]);
        assert_names(t.path(), &["data/web/*.jsonl"], &["a.jsonl", "b.jsonl"]);
        assert_names(t.path(), &["data/*/a.jsonl"], &["web/a.jsonl"]);
        assert_names(t.path(), &["./data/../data/web/a.jsonl"], &["a.jsonl"]);
        assert_names(
            t.path(),
            &["data/**/*.jsonl"],
            &["web/a.jsonl", "web/b.jsonl", "web/x/c.jsonl"],
        );
        assert_names(
            t.path(),
            &["data/web/**"],
            &["a.jsonl", "b.jsonl", "x/c.jsonl"],
        );
        assert_names(t.path(), &["**/c.jsonl"], &["data/web/x/c.jsonl"]);
    }

    #[test]
    fn wildcards_stay_inside_one_part() {
        let t = tree(&["a1.txt", "a2.txt", "b1.txt", "a/1.txt", "a/b/1.txt"]);
        assert_names(t.path(), &["a?.txt"], &["a1.txt", "a2.txt"]);
        assert_names(t.path(), &["[!a]1.txt"], &["b1.txt"]);
        assert_names(t.path(), &["{a,b}1.txt"], &["a1.txt", "b1.txt"]);
        assert_names(t.path(), &["a/{b/1,1}.txt"], &["1.txt", "b/1.txt"]);
        assert_names(
            t.path(),
            &["{a{1,2},b1}.txt"],
            &["a1.txt", "a2.txt", "b1.txt"],
        );
        assert_names(t.path(), &["*/1.txt"], &["a/1.txt"]);
    }

    #[test]
    fn a_path_that_exists_as_written_is_itself() {
        let t = tree(&["[x].jsonl", "x.jsonl"]);
        assert_names(t.path(), &["[x].jsonl"], &["[x].jsonl"]);
        assert_names(t.path(), &["\\[x].jsonl"], &["[x].jsonl"]);
        assert_names(t.path(), &["[x-y].jsonl"], &["x.jsonl"]);
    }

    #[test]
    fn two_globs_find_a_file_once_and_never_give_two_files_one_name() {
        let t = tree(&["a/x.jsonl", "b/x.jsonl"]);
        assert_names(t.path(), &["a/*", "a/x.jsonl"], &["x.jsonl"]);
        assert_names(t.path(), &["a/*", "b/*"], &["a/x.jsonl", "b/x.jsonl"]);
    }

    #[test]
    fn an_absolute_glob_ignores_the_base() {
        let t = tree(&["a/x.jsonl"]);
        let glob = format!("{}/a/*.jsonl", t.path().display());
        assert_names(Path::new("/nowhere"), &[&glob], &["x.jsonl"]);
    }

    #[test]
    fn hidden_files_are_found_only_when_named() {
        let t = tree(&[".a.jsonl", "b.jsonl", ".h/c.jsonl"]);
        assert_names(t.path(), &["*.jsonl"], &["b.jsonl"]);
        assert_names(t.path(), &["**/*.jsonl"], &["b.jsonl"]);
        assert_names(t.path(), &[".*.jsonl"], &[".a.jsonl"]);
        assert_names(t.path(), &[".h/*"], &["c.jsonl"]);
    }

    #[test]
    fn exclusions_take_files_out() {
        let t = tree(&["d/a.jsonl", "d/b-test.jsonl", "d/old/c.jsonl", "d/.e.jsonl"]);
        let all = "d/**/*.jsonl";
        assert_names(
            t.path(),
            &[all, "!*-test.jsonl"],
            &["a.jsonl", "old/c.jsonl"],
        );
        assert_names(t.path(), &[all, "!d/*"], &["old/c.jsonl"]);
        assert_names(t.path(), &["!d/old", all], &["a.jsonl", "b-test.jsonl"]);
        assert_names(t.path(), &[all, "!d/old/**"], &["a.jsonl", "b-test.jsonl"]);
        assert_names(
            t.path(),
            &[all, "!d/a.jsonl", "!nothing"],
            &["b-test.jsonl", "old/c.jsonl"],
        );
        assert!(matches!(
            names(t.path(), &[all, "!d/**"]),
            Err(SourceError::NoFiles { .. })
        ));
    }

    #[test]
    fn a_glob_of_too_many_ways_is_refused_before_it_is_spelled_out() {
        let t = tree(&["a.jsonl", "b/c/a.jsonl"]);
        assert_names(t.path(), &["{a,b,{c,d}}.jsonl"], &["a.jsonl"]);
        for (glob, word) in [
            ("{a,b}".repeat(60), "4096 ways"),
            ("{a,b}".repeat(5_000), "4096"),
            ("{".repeat(2_000), "no '}'"),
        ] {
            let error = names(t.path(), &[&glob]).expect_err("too many");
            assert!(error.to_string().contains(word), "{error}");
        }
        // More of them mean the same as one.
        let stars = "**/".repeat(300) + "a.jsonl";
        assert_names(t.path(), &[&stars], &["a.jsonl", "b/c/a.jsonl"]);
    }

    #[test]
    fn a_glob_without_files_is_named() {
        let t = tree(&["a.jsonl"]);
        for globs in [
            &["a.jsonl", "b*.jsonl"][..],
            &["b*.jsonl"],
            &["no/such/b*.jsonl"],
        ] {
            let error = names(t.path(), globs).expect_err("nothing matches");
            assert!(error.to_string().contains("b*.jsonl'"), "{error}");
        }
        assert!(matches!(
            names(t.path(), &[]),
            Err(SourceError::NoFiles { .. })
        ));
        assert!(matches!(
            names(t.path(), &["a{b.jsonl"]),
            Err(SourceError::BadGlob { .. })
        ));
        assert!(matches!(
            names(t.path(), &["[b.jsonl"]),
            Err(SourceError::BadGlob { .. })
        ));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_once_and_loops_end() {
        use std::os::unix::fs::symlink;
        let t = tree(&["a/x.jsonl", "b/y.jsonl", "folder.jsonl/z"]);
        let path = |name: &str| t.path().join(name);
        symlink(path("b"), path("a/to_b")).expect("a link");
        symlink(path("a"), path("b/to_a")).expect("a link");
        symlink(path("gone"), path("a/dangling.jsonl")).expect("a link");
        symlink(path("a/x.jsonl"), path("a/again.jsonl")).expect("a link");
        assert_names(
            t.path(),
            &["a/**/*.jsonl"],
            &["again.jsonl", "to_b/y.jsonl"],
        );
        // A folder is not a file, whatever its name.
        assert!(matches!(
            names(t.path(), &["*.jsonl"]),
            Err(SourceError::NoFiles { .. })
        ));
    }

    #[test]
    fn schemes_are_told_from_paths() {
        assert_eq!(remote_scheme("HTTPS://host/x"), Some("https"));
        assert_eq!(remote_scheme("!gs://bucket/x"), Some("gs"));
        assert_eq!(remote_scheme("s3/x"), None);
        assert_eq!(remote_scheme("é"), None);
    }
}
