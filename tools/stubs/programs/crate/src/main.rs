//! try SERVER TOPIC: creates a topic, writes three records and reads them back.

use std::{env, error::Error};

use streamlog_proto::v1::{
    admin_client::AdminClient, end_position, records_client::RecordsClient, start_position,
    CreateTopicsRequest, EndPosition, NewTopic, OffsetBound, PublishRecord, PublishRequest,
    StartPosition, SubscribePartitions, SubscribeRequest,
};
use tokio::runtime::Builder;

fn main() -> Result<(), Box<dyn Error>> {
    Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(write_and_read())
}

async fn write_and_read() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().collect();
    let (server, topic) = (format!("http://{}", arguments[1]), &arguments[2]);
    let new = NewTopic {
        name: topic.clone(),
        partitions: Some(1),
        ..Default::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![new],
        ..Default::default()
    };
    let created = AdminClient::connect(server.clone())
        .await?
        .create_topics(request)
        .await?
        .into_inner();
    if let Some(error) = &created.results[0].error {
        return Err(error.message.clone().into());
    }
    let mut records = RecordsClient::connect(server).await?;
    let written = ["one", "two", "three"].map(|value| PublishRecord {
        value: Some(value.into()),
        ..Default::default()
    });
    records
        .publish(PublishRequest {
            topic: topic.clone(),
            records: written.into(),
            ..Default::default()
        })
        .await?;
    let reading = SubscribePartitions {
        topic: topic.clone(),
        start: Some(StartPosition {
            position: Some(start_position::Position::Bound(
                OffsetBound::Earliest as i32,
            )),
        }),
        end: Some(EndPosition {
            position: Some(end_position::Position::Bound(OffsetBound::Latest as i32)),
        }),
        ..Default::default()
    };
    let mut responses = records
        .subscribe(SubscribeRequest {
            subscriptions: vec![reading],
            ..Default::default()
        })
        .await?
        .into_inner();
    let mut values = Vec::new();
    while let Some(response) = responses.message().await? {
        for record in response
            .partitions
            .into_iter()
            .flat_map(|part| part.records)
        {
            values.push(String::from_utf8(record.value.unwrap_or_default())?);
        }
    }
    println!("{}", values.join(" "));
    Ok(())
}
