//! How fast messages are written, on one thread: `cargo run --release -p millstream-generate
//! --example throughput [TEMPLATE_FILE]`. Without a file it is the message of the published
//! benchmarks of Google's template, 1,005 bytes. Prints megabytes (10^6) a second, best of five.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use millstream_generate::{Generator, Template};

const MESSAGE: &str =
    r#"{ "logStreamId": "{{integer(1000001,2000000)}}", "message": "{{alphaNumeric(962)}}" }"#;
const ROUNDS: usize = 5;
const BYTES_PER_ROUND: usize = 1_000_000_000;
/// A buffer as a sink would fill it.
const BUFFER_BYTES: usize = 1 << 20;

#[expect(clippy::disallowed_methods, reason = "a measurement is of real time")]
fn main() -> Result<(), Box<dyn Error>> {
    let text = match std::env::args().nth(1) {
        Some(path) => std::fs::read_to_string(path)?,
        None => MESSAGE.to_owned(),
    };
    let template = Template::parse(&text)?;
    for warning in template.warnings() {
        eprintln!("{warning}");
    }
    let mut generator = Generator::new(&template, 1, 0);
    let mut buffer = Vec::with_capacity(2 * BUFFER_BYTES);
    let mut best = 0.0_f64;
    let mut messages_a_second = 0.0;
    for _ in 0..ROUNDS {
        let (start, mut bytes, mut messages) = (Instant::now(), 0, 0_u32);
        while bytes < BYTES_PER_ROUND {
            buffer.clear();
            while buffer.len() < BUFFER_BYTES {
                generator.write_message(&mut buffer)?;
                messages += 1;
            }
            bytes += black_box(&buffer).len();
        }
        let seconds = start.elapsed().as_secs_f64();
        let rate = bytes as f64 / 1e6 / seconds;
        if rate > best {
            (best, messages_a_second) = (rate, f64::from(messages) / seconds);
        }
    }
    println!("{best:.0} MB/s, {messages_a_second:.0} messages/s");
    Ok(())
}
