//! Writes each line of standard input as a record: producer [--servers ...] TOPIC

use std::{error::Error, time::Duration};

use client::{Options, Producer, connect, v1::PublishRecord};
use tokio::{
    io::{AsyncBufReadExt, BufReader, stdin},
    time::Instant,
};

const LINES_PER_REQUEST: usize = 500;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse("producer [--servers HOST:PORT,...] TOPIC", &[("servers", "127.0.0.1:9092")], 1);
    let mut producer = Producer::new(connect(options.value("servers"))?);
    let mut lines = BufReader::new(stdin()).lines();
    let mut written = 0;
    loop {
        let mut records = Vec::new();
        while records.len() < LINES_PER_REQUEST
            && let Some(line) = lines.next_line().await?
        {
            records.push(PublishRecord { value: Some(line.into_bytes()), ..Default::default() });
        }
        if records.is_empty() {
            break;
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        written += producer.publish(deadline, options.argument(0), records).await?.len();
    }
    println!("{written} records written");
    Ok(())
}
