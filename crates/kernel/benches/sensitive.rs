//! The sensitive search beside its size: adding, searching as it is, searching under all codes.
#![allow(clippy::indexing_slicing, missing_docs, reason = "bench code")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use kernel::sensitive::Sensitive;
use kernel::{EventId, Level, Source};

fn secrets(count: u32) -> String {
    (0..count)
        .map(|n| {
            format!(
                "KEY={:08x}{:08x}\n",
                n.wrapping_mul(0x9e37_79b1),
                n.wrapping_mul(0x85eb_ca6b)
            )
        })
        .collect()
}

fn known(count: u32) -> Sensitive {
    let mut sensitive = Sensitive::default();
    sensitive.add_text(&secrets(count), Level::Critical, &Source::Task, EventId(1));
    sensitive
}

fn prose(bytes: usize) -> String {
    const WORDS: [&str; 8] = [
        "the", "boundary", "holds", "what", "nobody", "vouched", "for,", "yet.",
    ];
    let mut text = String::new();
    let mut state = 1u32;
    while text.len() < bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text += WORDS[(state >> 29) as usize];
        text.push(' ');
    }
    text
}

fn search(c: &mut Criterion) {
    let text = prose(1 << 20);
    for count in [100, 100_000] {
        let scanner = known(count).scanner();
        let mut group = c.benchmark_group(format!("search with {count} tokens"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("plain", |b| {
            b.iter(|| scanner.scan_plain(black_box(text.as_bytes())))
        });
        group.bench_function("all codes", |b| {
            b.iter(|| scanner.scan(black_box(text.as_bytes())))
        });
        group.throughput(Throughput::Elements(1));
        group.bench_function("a header", |b| {
            b.iter(|| scanner.scan(black_box(b"application/json; charset=utf-8")));
        });
        group.finish();
    }
}

fn add(c: &mut Criterion) {
    let mut group = c.benchmark_group("add");
    let content = secrets(10_000);
    group.throughput(Throughput::Bytes(content.len() as u64));
    group.bench_function("10000 tokens to none", |b| {
        b.iter_batched_ref(
            Sensitive::default,
            |s| s.add_text(&content, Level::Critical, &Source::Task, EventId(2)),
            BatchSize::LargeInput,
        );
    });
    group.throughput(Throughput::Elements(1));
    let mut sensitive = known(100_000);
    let mut event = 2;
    group.bench_function("one token to 100000, and a search", |b| {
        b.iter(|| {
            event += 1;
            let text = format!("KEY={event}-one-more");
            sensitive.add_text(&text, Level::Critical, &Source::Task, EventId(event));
            black_box(sensitive.scanner());
        });
    });
    group.finish();
}

criterion_group!(benches, search, add);
criterion_main!(benches);
