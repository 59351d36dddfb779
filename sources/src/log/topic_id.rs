//! Kafka's ids of topics: another id is another topic under the same name.
//!
//! rdkafka wraps no call that tells them, so this file, alone in Fencepost, speaks to librdkafka directly.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::ptr::{self, NonNull};

use rdkafka::ClientContext;
use rdkafka::bindings as native;
use rdkafka::client::Client;
use rdkafka::consumer::Consumer;

use super::client::{AssignedConsumer, Complaints};
use super::config::REQUEST_TIMEOUT;
use super::{KafkaConfig, LogError};

/// The id of a topic, as Kafka's tools print it (base64).
///
/// # Errors
/// [`LogError::Refused`] when there is no such topic; [`LogError::Transient`] when the brokers do not answer.
pub fn topic_id(config: &KafkaConfig, topic: &str) -> Result<String, LogError> {
    // Of all clients a consumer without a group is the quickest to close.
    let client: AssignedConsumer = config
        .client()
        .create_with_context(Complaints::default())
        .map_err(|error| LogError::kafka("cannot make a Kafka client", &error))?;
    ask(client.client(), topic)
}

/// [`topic_id`] by way of a client that exists.
pub(crate) fn ask<C: ClientContext>(client: &Client<C>, topic: &str) -> Result<String, LogError> {
    let name = CString::new(topic)
        .map_err(|_| LogError::Refused(format!("topic {topic:?} has a name that Kafka cannot have")))?;
    let unanswered = || LogError::Transient(format!("brokers did not tell the id of topic {topic}"));

    // SAFETY: the client outlives this call, hence the queue; the queue is destroyed once, by its guard.
    let queue = unsafe {
        Owned::new(native::rd_kafka_queue_new(client.native_ptr()), native::rd_kafka_queue_destroy)
    };
    let queue = queue.ok_or_else(unanswered)?;

    let mut names = [name.as_ptr()];
    // SAFETY: `names` holds one pointer to a string that ends with a nul and lives as long as `name`; librdkafka copies
    // it. The collection is destroyed once, by its guard.
    let topics = unsafe {
        let collection = native::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        Owned::new(collection, native::rd_kafka_TopicCollection_destroy)
    };
    let topics = topics.ok_or_else(unanswered)?;

    // SAFETY: client, collection and queue are alive; no options means the defaults. The request owns copies of what it
    // needs, and answers to the queue, of which it holds a reference of its own.
    unsafe {
        native::rd_kafka_DescribeTopics(client.native_ptr(), topics.pointer(), ptr::null(), queue.pointer());
    }

    let timeout_ms =
        i32::try_from(REQUEST_TIMEOUT.as_millis()).expect("the request time-out is a few seconds");
    // SAFETY: the queue is alive. The event, if any, is ours, and is destroyed once, by its guard.
    let event = unsafe {
        Owned::new(native::rd_kafka_queue_poll(queue.pointer(), timeout_ms), native::rd_kafka_event_destroy)
    };
    let event = event.ok_or_else(unanswered)?;

    // SAFETY: the event is alive until the end of this function, and everything read here belongs to it and is copied
    // before then. Each pointer is checked before it is followed; `count` bounds the array.
    unsafe {
        let result = native::rd_kafka_event_DescribeTopics_result(event.pointer());
        if result.is_null() || native::rd_kafka_event_error(event.pointer()) as i32 != 0 {
            return Err(unanswered());
        }
        let mut count = 0;
        let described = native::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        if described.is_null() || count != 1 {
            return Err(unanswered());
        }
        let error = native::rd_kafka_TopicDescription_error(*described);
        if !error.is_null() && native::rd_kafka_error_code(error) as i32 != 0 {
            let reason = CStr::from_ptr(native::rd_kafka_error_string(error)).to_string_lossy();
            return Err(LogError::Refused(format!("topic {topic}: {reason}: run `fencepost migrate`")));
        }
        let id = native::rd_kafka_TopicDescription_topic_id(*described);
        let text = if id.is_null() { ptr::null() } else { native::rd_kafka_Uuid_base64str(id) };
        if text.is_null() {
            return Err(LogError::Refused(format!(
                "the brokers give topic {topic} no id: Kafka 3.1 or newer is needed"
            )));
        }
        Ok(CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

/// A native object that is destroyed when its guard goes.
struct Owned<T> {
    object: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// # Safety
    /// `object` is null or alive, nobody else destroys it, and `destroy` is its destructor.
    unsafe fn new(object: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Option<Self> {
        NonNull::new(object).map(|object| Self { object, destroy })
    }

    fn pointer(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: by the contract of `new`, the object is alive and this is the only place that destroys it.
        unsafe { (self.destroy)(self.object.as_ptr()) }
    }
}
