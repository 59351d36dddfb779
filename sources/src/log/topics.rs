//! The four topics: made by [`create`], checked by [`verify`] before anything is read from or written to them.

use std::time::{Duration, Instant};

use backon::{BlockingRetryable, ConstantBuilder};
use fencepost_model::placement::LANES;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::client::Complaints;
use super::config::REQUEST_TIMEOUT;
use super::{KafkaConfig, LogError};

/// New topics have leaders after at most this long, or [`create`] gives up.
const LEADERS_TIMEOUT: Duration = Duration::from_secs(30);

const SEVEN_DAYS_MS: &str = "604800000";
const WITHOUT_LIMIT: &str = "-1";

/// A dead letter carries the record that it is about and says more: its topic takes records somewhat larger than the
/// broker's default.
const DEAD_LETTER_BYTES_MAX: &str = "2097152";

type Admin = AdminClient<Complaints>;

/// What a topic has to be.
struct Topic {
    name: String,
    /// `None`: as it was created.
    partitions: Option<u32>,
    retention_ms: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

fn topics(config: &KafkaConfig) -> [Topic; 4] {
    let topic = |name, partitions, retention_ms| Topic { name, partitions, retention_ms, settings: &[] };
    let dead_letters = topic(config.dead_letters_topic(), Some(1), SEVEN_DAYS_MS);
    [
        topic(config.flips_topic(), None, SEVEN_DAYS_MS),
        topic(config.windows_topic(), Some(1), WITHOUT_LIMIT),
        topic(config.totals_topic(), Some(u32::from(LANES)), SEVEN_DAYS_MS),
        Topic { settings: &[("max.message.bytes", DEAD_LETTER_BYTES_MAX)], ..dead_letters },
    ]
}

/// Creates the topics that are missing, waits until every partition has a leader, and checks them all as [`verify`]
/// does. Topics that exist are left as they are.
///
/// # Errors
/// [`LogError::Refused`] when a topic is not what it has to be; [`LogError::Transient`] when the brokers do not answer.
pub fn create(config: &KafkaConfig) -> Result<(), LogError> {
    let admin = admin(config)?;
    let topics = topics(config);
    let refused = |reason: &str| LogError::Refused(format!("cannot create the topics of the log: {reason}"));
    let partitions = i32::try_from(config.flips_partitions).ok().filter(|n| *n > 0);
    let partitions = partitions.ok_or_else(|| refused("kafka.flips_partitions has to be at least 1"))?;
    let wanted = topics.iter().map(|topic| {
        let partitions = topic.partitions.map_or(partitions, u32::cast_signed);
        let replication = TopicReplication::Fixed(i32::from(config.replication_factor));
        // Record times are windows, which may run ahead of a broker's clock: none is too far in the future.
        let new = NewTopic::new(&topic.name, partitions, replication)
            .set("cleanup.policy", "delete")
            .set("retention.ms", topic.retention_ms)
            .set("retention.bytes", WITHOUT_LIMIT)
            .set("message.timestamp.type", "CreateTime")
            .set("message.timestamp.after.max.ms", "9223372036854775807");
        topic.settings.iter().fold(new, |new, (key, value)| new.set(key, value))
    });
    let wanted: Vec<_> = wanted.collect();
    let options = AdminOptions::new().operation_timeout(Some(REQUEST_TIMEOUT));
    let results = pollster::block_on(admin.create_topics(&wanted, &options))
        .map_err(|error| LogError::kafka("cannot create the topics of the log", &error))?;
    for result in results {
        match result {
            Ok(name) => tracing::info!(topic = name, "topic created"),
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((name, code)) => return Err(refused(&format!("{name}: {code}"))),
        }
    }
    let until = Instant::now() + LEADERS_TIMEOUT;
    let leaders = || topics.iter().try_for_each(|topic| partitions_of(&admin, &topic.name).map(drop));
    leaders
        .retry(ConstantBuilder::default().with_delay(Duration::from_millis(50)).without_max_times())
        .when(|_| Instant::now() < until)
        .call()?;
    check(&admin, &topics).map(drop)
}

/// Checks that the topics exist and are what they have to be, and returns the number of partitions of the flips topic.
///
/// # Errors
/// [`LogError::Refused`] when a topic is missing, has another number of partitions than it has to have, is compacted
/// (which removes all but the last flip of an item), or does not keep the times of records;
/// [`LogError::Transient`] when the brokers do not answer.
pub fn verify(config: &KafkaConfig) -> Result<u32, LogError> {
    check(&admin(config)?, &topics(config))
}

fn admin(config: &KafkaConfig) -> Result<Admin, LogError> {
    config
        .client()
        .create_with_context(Complaints::default())
        .map_err(|error| LogError::kafka("cannot make a Kafka client", &error))
}

fn check(admin: &Admin, topics: &[Topic; 4]) -> Result<u32, LogError> {
    for topic in topics {
        let found = partitions_of(admin, &topic.name)?;
        if let Some(wanted) = topic.partitions
            && found != wanted
        {
            return Err(LogError::Refused(format!(
                "topic {} has {found} partitions and has to have {wanted}: delete it if it is empty, and run `fencepost migrate`",
                topic.name
            )));
        }
    }
    let resources = topics.each_ref().map(|topic| ResourceSpecifier::Topic(&topic.name));
    let options = AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT));
    let described = pollster::block_on(admin.describe_configs(&resources, &options))
        .map_err(|error| LogError::kafka("cannot read the settings of the topics", &error))?;
    for (topic, settings) in topics.iter().zip(described) {
        let settings = settings.map_err(|code| {
            LogError::Transient(format!("cannot read the settings of topic {}: {code}", topic.name))
        })?;
        let value = |key| settings.get(key).and_then(|entry| entry.value.as_deref()).unwrap_or_default();
        for (key, wanted, why) in [
            (
                "cleanup.policy",
                "delete",
                "compaction removes all but the last record of a key, and counts with it",
            ),
            (
                "message.timestamp.type",
                "CreateTime",
                "readers find their place by the times that records carry",
            ),
        ] {
            if value(key) != wanted {
                return Err(LogError::Refused(format!(
                    "topic {} has {key}={} and has to have {wanted}: {why}. Whatever was removed is lost; set it with \
                     kafka-configs only if nothing was",
                    topic.name,
                    value(key)
                )));
            }
        }
        if topic.retention_ms == WITHOUT_LIMIT
            && let Some(key) =
                ["retention.ms", "retention.bytes"].into_iter().find(|key| value(key) != WITHOUT_LIMIT)
        {
            return Err(LogError::Refused(format!(
                "topic {} has {key}={} and has to keep everything (-1): without its history a relay cannot go on. Set it \
                 with kafka-configs",
                topic.name,
                value(key)
            )));
        }
    }
    partitions_of(admin, &topics[0].name)
}

/// The number of partitions of a topic, all of which have leaders.
fn partitions_of(admin: &Admin, name: &str) -> Result<u32, LogError> {
    let metadata = admin
        .inner()
        .fetch_metadata(Some(name), REQUEST_TIMEOUT)
        .map_err(|error| LogError::kafka("cannot read the metadata of the topics", &error))?;
    partitions_in(&metadata, name)
}

/// The number of partitions of a topic by the metadata, all of which have leaders.
pub(crate) fn partitions_in(metadata: &rdkafka::metadata::Metadata, name: &str) -> Result<u32, LogError> {
    let missing = || LogError::Refused(format!("topic {name} does not exist: run `fencepost migrate`"));
    let topic = metadata.topics().iter().find(|topic| topic.name() == name).ok_or_else(missing)?;
    match topic.error().map(RDKafkaErrorCode::from) {
        None if topic.partitions().is_empty() => return Err(missing()),
        None => {}
        Some(RDKafkaErrorCode::UnknownTopicOrPartition) => return Err(missing()),
        Some(code) => {
            let error = KafkaError::MetadataFetch(code);
            return Err(LogError::kafka(format_args!("cannot look at topic {name}"), &error));
        }
    }
    if let Some(partition) = topic.partitions().iter().find(|partition| partition.leader() < 0) {
        return Err(LogError::Transient(format!(
            "partition {} of topic {name} has no leader",
            partition.id()
        )));
    }
    Ok(u32::try_from(topic.partitions().len()).expect("Kafka numbers partitions by 32 bits"))
}
