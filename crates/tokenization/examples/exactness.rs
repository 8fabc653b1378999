//! Compares our token ids with the `tokenizers` crate's, on files and on random text.
//!
//! ```console
//! $ cargo run --release -p tokenization --example exactness -- \
//!     --random 1000000 --max-mb 60 --corpus DIRECTORY… --tokenizer tokenizer.json…
//! ```
//!
//! Files are read in pieces of up to some kilobytes, invalid UTF-8 replaced. The first difference
//! of each tokenizer is printed, made as short as it goes; then the exit status is 1.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use random_text::RandomText;
use tokenization::{Tokenizer, TokenizerOptions};

#[path = "../src/fast/random_text.rs"]
mod random_text;

#[derive(Default)]
struct Arguments {
    random: usize,
    seed: u64,
    max_bytes: usize,
    corpus: Vec<PathBuf>,
    tokenizers: Vec<PathBuf>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = arguments()?;
    let mut files = Vec::new();
    for directory in &arguments.corpus {
        files_below(directory, &mut files)?;
    }
    files.sort_unstable();
    // In an order that mixes what lies together, and is the same each time.
    fastrand::Rng::with_seed(arguments.seed).shuffle(&mut files);
    let mut all_equal = true;
    for path in &arguments.tokenizers {
        all_equal &= compare(path, &files, &arguments)?;
    }
    Ok(ExitCode::from(u8::from(!all_equal)))
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut parsed = Arguments {
        max_bytes: usize::MAX,
        ..Arguments::default()
    };
    let mut option = String::new();
    for argument in std::env::args().skip(1) {
        if argument.starts_with("--") {
            option = argument;
            continue;
        }
        match option.as_str() {
            "--random" => parsed.random = argument.parse()?,
            "--seed" => parsed.seed = argument.parse()?,
            "--max-mb" => parsed.max_bytes = argument.parse::<usize>()? * 1_000_000,
            "--corpus" => parsed.corpus.push(argument.into()),
            "--tokenizer" => parsed.tokenizers.push(argument.into()),
            _ => return Err(format!("unknown option {option:?}").into()),
        }
    }
    Ok(parsed)
}

/// Whether all is equal.
fn compare(path: &Path, files: &[PathBuf], arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let json = std::fs::read(path)?;
    let options = TokenizerOptions {
        max_sequence_tokens: 100_000,
        strip: false,
        lower_case: false,
        vocab_size: u32::MAX,
    };
    let started = Instant::now();
    let ours = Tokenizer::from_json(&json, options)?;
    let loaded = started.elapsed();
    let mut reference = tokenizers::Tokenizer::from_bytes(&json)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    reference
        .with_truncation(None)
        .map(|one| one.with_padding(None))
        .map_err(|error| error.to_string())?;
    println!(
        "{}: encoder {}, loaded in {:.0} ms",
        path.display(),
        ours.encoder_name(),
        loaded.as_secs_f64() * 1e3
    );
    let mut comparison = Comparison {
        ours,
        reference,
        bytes: 0,
        texts: 0,
        tokens: 0,
        ours_time: Duration::ZERO,
        reference_time: Duration::ZERO,
    };

    let mut rng = fastrand::Rng::with_seed(arguments.seed);
    for file in files {
        if comparison.bytes >= arguments.max_bytes {
            break;
        }
        let Ok(contents) = std::fs::read(file) else {
            continue;
        };
        // Tables and images are no text.
        if contents
            .iter()
            .take(1_000)
            .filter(|&&byte| byte == 0)
            .count()
            > 2
        {
            continue;
        }
        let contents = String::from_utf8_lossy(&contents);
        let mut rest = &contents[..];
        while !rest.is_empty() {
            let mut end = rng.usize(1..6_000).min(rest.len());
            while !rest.is_char_boundary(end) {
                end += 1;
            }
            let (text, after) = rest.split_at(end);
            if !comparison.is_equal(text) {
                println!("  in {}", file.display());
                return Ok(false);
            }
            rest = after;
        }
    }
    comparison.report("files");

    let pieces = RandomText::pieces_of(&comparison.reference);
    let mut random = RandomText::new(arguments.seed, pieces);
    for _ in 0..arguments.random {
        if !comparison.is_equal(&random.text()) {
            return Ok(false);
        }
    }
    comparison.report("random");
    Ok(true)
}

struct Comparison {
    ours: Tokenizer,
    reference: tokenizers::Tokenizer,
    bytes: usize,
    texts: usize,
    tokens: usize,
    ours_time: Duration,
    reference_time: Duration,
}

impl Comparison {
    fn is_equal(&mut self, text: &str) -> bool {
        self.bytes += text.len();
        self.texts += 1;
        let start = Instant::now();
        let ours = self.ours.encode_segment(text).unwrap_or_default();
        let between = Instant::now();
        let reference = ids_of(&self.reference, text);
        self.ours_time += between - start;
        self.reference_time += between.elapsed();
        self.tokens += ours.len();
        if ours == reference {
            return true;
        }
        let text = self.shortest(text.to_owned());
        println!(
            "  DIFFERENT: {text:?}\n    ours      {:?}\n    reference {:?}",
            self.ours.encode_segment(&text),
            ids_of(&self.reference, &text)
        );
        false
    }

    /// A text that differs too, from which no character can be taken away.
    fn shortest(&self, mut text: String) -> String {
        let differs = |text: &str| {
            self.ours.encode_segment(text).unwrap_or_default() != ids_of(&self.reference, text)
        };
        let mut length = text.chars().count() / 2;
        while length > 0 {
            let characters: Vec<char> = text.chars().collect();
            let shorter = (0..characters.len()).step_by(length).find_map(|start| {
                let end = (start + length).min(characters.len());
                let rest: String = characters[..start]
                    .iter()
                    .chain(&characters[end..])
                    .collect();
                differs(&rest).then_some(rest)
            });
            match shorter {
                Some(shorter) => text = shorter,
                None => length /= 2,
            }
        }
        text
    }

    fn report(&mut self, name: &str) {
        println!(
            "  {name}: {} texts, {:.1} MB, {} tokens equal; ours {:.1} s, reference {:.1} s ({:.1}x)",
            self.texts,
            self.bytes as f64 / 1e6,
            self.tokens,
            self.ours_time.as_secs_f64(),
            self.reference_time.as_secs_f64(),
            self.reference_time.as_secs_f64() / self.ours_time.as_secs_f64()
        );
        (self.bytes, self.texts, self.tokens) = (0, 0, 0);
        (self.ours_time, self.reference_time) = (Duration::ZERO, Duration::ZERO);
    }
}

fn ids_of(reference: &tokenizers::Tokenizer, text: &str) -> Vec<u32> {
    // A text that the crate fails on has no ids to compare with: `u32::MAX` is none of ours.
    let encoded = std::panic::catch_unwind(|| reference.encode_fast(text, false));
    match encoded {
        Ok(Ok(encoding)) => encoding.get_ids().to_vec(),
        _ => vec![u32::MAX],
    }
}

fn files_below(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        // Links may lead round in circles.
        if !entry.file_type()?.is_symlink() {
            files_below(&entry.path(), files)?;
        }
    }
    Ok(())
}
