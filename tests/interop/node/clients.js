// Sends and consumes by RocketMQ's 5.x client for Node. Prints one line for each thing that was done.
// clients.js ENDPOINTS WHAT:TOPIC...      environment: TLS=1, ACCESS_KEY, SECRET_KEY
'use strict';

const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const COUNT = 20;
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
const quiet = { debug() {}, info() {}, warn() {}, error(...words) { if (process.env.LOUD) console.error(...words); } };
const options = {
  endpoints: process.argv[2], namespace: '', sslEnabled: process.env.TLS === '1', logger: quiet,
  ...(process.env.ACCESS_KEY && {
    sessionCredentials: { accessKey: process.env.ACCESS_KEY, accessSecret: process.env.SECRET_KEY },
  }),
};

function require_(holds, words) {
  if (!holds) throw new Error(words);
}

function message(topic, body, more = {}) {
  return { topic, tag: 'A', keys: [body], body: Buffer.from(body), ...more };
}

async function producing(topic, work, more = {}) {
  const producer = new Producer({ ...options, topic, ...more });
  await producer.startup();
  try {
    await work(producer);
  } finally {
    await producer.shutdown();
  }
}

async function send(topic, more) {
  await producing(topic, async producer => {
    for (let number = 0; number < COUNT; number++) await producer.send(message(topic, `${topic}-${number}`, more(number)));
  });
}

async function transaction(topic) {
  let asked = 0;
  const checker = { async check() { asked++; return TransactionResolution.COMMIT; } };
  await producing(topic, async producer => {
    for (let number = 0; number < COUNT; number++) {
      const one = producer.beginTransaction();
      await producer.send(message(topic, `${topic}-${number}`), one);
      if (number > 0) await one.commit();
    }
    const rolled = producer.beginTransaction();
    await producer.send(message(topic, 'rolled back'), rolled);
    await rolled.rollback();
    for (let round = 0; round < 300 && !asked; round++) await sleep(100);
    require_(asked, 'no check-back came');
    await sleep(1000);
  }, { checker });
}

async function receiving(topic, expression, wanted, rounds = 12) {
  const consumer = new SimpleConsumer({
    ...options, consumerGroup: `simple-${topic}`, awaitDuration: 6000, subscriptions: new Map([[topic, expression]]),
  });
  await consumer.startup();
  const found = new Set();
  try {
    for (let round = 0; round < rounds && found.size < wanted; round++) {
      let messages;
      try {
        messages = await consumer.receive(16, 20000);
      } catch (error) {
        if (rounds < 20) throw error;
        await sleep(300);
        continue;
      }
      for (const one of messages) {
        if (found.size % 7 === 3) await consumer.changeInvisibleDuration(one, 30000);
        await consumer.ack(one);
        found.add(one.body.toString());
      }
    }
  } finally {
    await consumer.shutdown();
  }
  require_(found.size === wanted && !found.has('rolled back'), `came: ${[...found]}`);
  return found;
}

async function listening(topic, consume, until) {
  const consumer = new PushConsumer({
    ...options, consumerGroup: `push-${topic}`, subscriptions: new Map([[topic, 'A']]), messageListener: { consume },
  });
  await consumer.startup();
  try {
    for (let round = 0; round < 600 && !until(); round++) await sleep(100);
    require_(until(), 'the listener did not get everything');
    await sleep(500);
  } finally {
    await consumer.shutdown();
  }
}

const WORK = {
  normal: topic => send(topic, () => ({ properties: new Map([['n', 'v']]) })),
  fifo: topic => send(topic, number => ({ messageGroup: `group-${number % 3}` })),
  delay: topic => send(topic, () => ({ deliveryTimestamp: new Date(Date.now() + 2000) })),
  // This client calls a message of priority 0 an ordinary one, which a topic of priorities refuses.
  priority: topic => send(topic, number => ({ priority: 1 + number % 3 })),
  transaction,
  simple: topic => receiving(topic, FilterExpression.SUB_ALL, COUNT),
  async push(topic) { // fails one message once, so that it comes again
    const done = new Set();
    const failed = new Set();
    await listening(topic, async one => {
      const body = one.body.toString();
      if (body.endsWith('-7') && !failed.has(body)) {
        failed.add(body);
        return ConsumeResult.FAILURE;
      }
      done.add(body);
      return ConsumeResult.SUCCESS;
    }, () => done.size === COUNT);
    require_(failed.size === 1, `failed: ${[...failed]}`);
  },
  async calm(topic) {
    const done = new Set();
    await listening(topic, async one => { done.add(one.body.toString()); return ConsumeResult.SUCCESS; },
      () => done.size === COUNT);
  },
  async dead(topic) { // fails every time, until the message is among the dead letters
    await producing(topic, producer => producer.send(message(topic, `${topic}-dead`)));
    let tries = 0;
    await listening(topic, async () => { tries++; return ConsumeResult.FAILURE; }, () => tries >= 2);
    await sleep(2500);
    require_(tries === 2, `tried ${tries} times`);
  },
  async filter(topic) {
    await producing(topic, async producer => {
      for (let number = 0; number < 6; number++) {
        await producer.send(message(topic, `tag-${number}`, {
          tag: number % 2 ? 'B' : 'C', properties: new Map([['a', String(number)]]),
        }));
      }
    });
    const tagged = await receiving(topic, new FilterExpression('B || D'), 3);
    require_([...tagged].sort().join() === 'tag-1,tag-3,tag-5', `by tag: ${[...tagged]}`);
  },
  async sql(topic) {
    await producing(topic, async producer => {
      for (let number = 0; number < 6; number++) {
        await producer.send(message(topic, `sql-${number}`, { properties: new Map([['a', String(number)]]) }));
      }
    });
    const found = await receiving(topic, new FilterExpression('a >= 4', FilterType.SQL), 2);
    require_([...found].sort().join() === 'sql-4,sql-5', `by SQL: ${[...found]}`);
  },
  async endure(topic) { // sends on while the broker goes away and comes back
    await producing(topic, async producer => {
      for (let number = 0; number < 200; number++) {
        for (let attempt = 0; ; attempt++) {
          try {
            await producer.send(message(topic, `${topic}-${number}`));
            break;
          } catch (error) {
            if (attempt > 200) throw error;
            await sleep(200);
          }
        }
        if (number === 60) console.log('under way');
        await sleep(10);
      }
    });
    await receiving(topic, FilterExpression.SUB_ALL, 200, 60);
  },
};

(async () => {
  for (const word of process.argv.slice(3)) {
    const [what, topic] = word.split(':');
    await WORK[what](topic);
    console.log(`done ${word}`);
  }
  process.exit(0);
})().catch(error => {
  console.error(error);
  process.exit(1);
});
