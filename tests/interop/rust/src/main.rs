//! Sends and consumes by RocketMQ's 5.x client for Rust. Prints one line for each thing that was done.
//! interop ENDPOINT WHAT:TOPIC...      environment: ACCESS_KEY, SECRET_KEY
//! The crate has no push consumer, cannot change an invisible time, and leaves TLS unconfigured.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use tokio::time::sleep;

const COUNT: usize = 20;
static ASKED: AtomicUsize = AtomicUsize::new(0);

fn client() -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(std::env::args().nth(1).unwrap());
    option.set_enable_tls(false);
    if let (Ok(user), Ok(secret)) = (std::env::var("ACCESS_KEY"), std::env::var("SECRET_KEY")) {
        option.set_access_key(user);
        option.set_secret_key(secret);
    }
    option
}

async fn producer(topic: &str, transactions: bool) -> Producer {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    let mut made = if transactions {
        let checker = Box::new(|_: String, _| {
            ASKED.fetch_add(1, Ordering::SeqCst);
            TransactionResolution::COMMIT
        });
        Producer::new_transaction_producer(option, client(), checker).unwrap()
    } else {
        Producer::new(option, client()).unwrap()
    };
    made.start().await.unwrap();
    made
}

fn builder(topic: &str, body: &str) -> MessageBuilder {
    MessageBuilder::builder().set_topic(topic).set_body(body.as_bytes().to_vec()).set_tag("A").set_keys(vec![body])
}

fn seconds_from_now(seconds: u64) -> i64 {
    (SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + seconds) as i64
}

async fn send(topic: &str, set: impl Fn(MessageBuilder, usize) -> MessageBuilder) {
    let producer = producer(topic, false).await;
    for number in 0..COUNT {
        let one = set(builder(topic, &format!("{topic}-{number}")), number);
        producer.send(one.build().unwrap()).await.unwrap();
    }
    producer.shutdown().await.unwrap();
}

async fn transaction(topic: &str) {
    let producer = producer(topic, true).await;
    for number in 0..COUNT {
        let one = builder(topic, &format!("{topic}-{number}")).enable_transaction().build().unwrap();
        let half = producer.send_transaction_message(one).await.unwrap();
        if number > 0 {
            half.commit().await.unwrap();
        }
    }
    let one = builder(topic, "rolled back").enable_transaction().build().unwrap();
    producer.send_transaction_message(one).await.unwrap().rollback().await.unwrap();
    for _ in 0..300 {
        if ASKED.load(Ordering::SeqCst) > 0 {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    assert!(ASKED.load(Ordering::SeqCst) > 0, "no check-back came");
    sleep(Duration::from_secs(1)).await;
    producer.shutdown().await.unwrap();
}

async fn receiving(topic: &str, kind: FilterType, expression: &str, wanted: usize, rounds: usize) -> Vec<String> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![topic]);
    option.set_consumer_group(format!("simple-{topic}"));
    let mut consumer = SimpleConsumer::new(option, client()).unwrap();
    consumer.start().await.unwrap();
    let mut found = BTreeSet::new();
    for _ in 0..rounds {
        if found.len() >= wanted {
            break;
        }
        let expression = FilterExpression::new(kind, expression);
        match consumer.receive_with(topic, &expression, 16, Duration::from_secs(20)).await {
            Ok(messages) => {
                for one in messages {
                    consumer.ack(&one).await.unwrap();
                    found.insert(String::from_utf8(one.body().to_vec()).unwrap());
                }
            }
            Err(_) => sleep(Duration::from_millis(300)).await,
        }
    }
    consumer.shutdown().await.unwrap();
    assert!(found.len() == wanted && !found.contains("rolled back"), "came: {found:?}");
    found.into_iter().collect()
}

async fn filter(topic: &str) {
    let producer = producer(topic, false).await;
    for number in 0..6 {
        let tag = if number % 2 == 1 { "B" } else { "C" };
        producer.send(builder(topic, &format!("tag-{number}")).set_tag(tag).build().unwrap()).await.unwrap();
    }
    producer.shutdown().await.unwrap();
    assert_eq!(receiving(topic, FilterType::Tag, "B || D", 3, 12).await, ["tag-1", "tag-3", "tag-5"]);
}

async fn sql(topic: &str) {
    let producer = producer(topic, false).await;
    for number in 0..6 {
        let one = builder(topic, &format!("sql-{number}")).set_properties(HashMap::from([("a", number.to_string())]));
        producer.send(one.build().unwrap()).await.unwrap();
    }
    producer.shutdown().await.unwrap();
    assert_eq!(receiving(topic, FilterType::Sql, "a >= 4", 2, 12).await, ["sql-4", "sql-5"]);
}

/// Sends on while the broker goes away and comes back.
async fn endure(topic: &str) {
    let producer = producer(topic, false).await;
    for number in 0..200 {
        for attempt in 0.. {
            match producer.send(builder(topic, &format!("{topic}-{number}")).build().unwrap()).await {
                Ok(_) => break,
                Err(error) => assert!(attempt < 200, "{error:?}"),
            }
            sleep(Duration::from_millis(200)).await;
        }
        if number == 60 {
            println!("under way");
        }
        sleep(Duration::from_millis(10)).await;
    }
    let _ = producer.shutdown().await;
    receiving(topic, FilterType::Tag, "*", 200, 60).await;
}

#[tokio::main]
async fn main() {
    for word in std::env::args().skip(2) {
        let (what, topic) = word.split_once(':').unwrap();
        match what {
            "normal" => send(topic, |one, _| one.set_properties(HashMap::from([("n", "v")]))).await,
            "fifo" => send(topic, |one, number| one.set_message_group(format!("group-{}", number % 3))).await,
            "delay" => send(topic, |one, _| one.set_delivery_timestamp(seconds_from_now(2))).await,
            "transaction" => transaction(topic).await,
            "simple" => drop(receiving(topic, FilterType::Tag, "*", COUNT, 12).await),
            "filter" => filter(topic).await,
            "sql" => sql(topic).await,
            "endure" => endure(topic).await,
            _ => panic!("unknown: {word}"),
        }
        println!("done {word}");
    }
}
