// Steps of the gRPC Node client: node grpc_client.js MODULES HOST:PORT cleartext|tls ACCESS_KEY SECRET_KEY STEP...
'use strict';

const { createRequire } = require('node:module');
const path = require('node:path');

const [modules, endpoints, security, accessKey, accessSecret, ...names] = process.argv.slice(2);
const load = createRequire(path.join(modules, 'package.json'));
const { Producer, SimpleConsumer, PushConsumer, FilterExpression, ConsumeResult } = load('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = load('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const PATIENCE_MS = 60_000;
const INVISIBLE_MS = 60_000;
const silent = { info() {}, warn() {}, error() {}, debug() {}, write() {}, log() {}, close() {} };
const common = { endpoints, namespace: '', sslEnabled: security === 'tls', logger: silent };
if (accessKey) common.sessionCredentials = { accessKey, accessSecret };

const list = items => `[${items.join(', ')}]`;
const text = message => message.body.toString();

async function producing(topic, work, checker) {
  const producer = new Producer({ ...common, topic, checker });
  await producer.startup();
  try {
    return await work((body, more, transaction) =>
      producer.send({ topic, body: Buffer.from(body), ...more }, transaction), producer);
  } finally {
    await producer.shutdown();
  }
}

async function consuming(topic, expression, work) {
  const consumer = new SimpleConsumer({
    ...common,
    consumerGroup: `${topic}-group`,
    subscriptions: new Map([[topic, expression]]),
    awaitDuration: 5_000,
  });
  await consumer.startup();
  try {
    return await work(consumer);
  } finally {
    await consumer.shutdown();
  }
}

async function receive(consumer, count) {
  const end = Date.now() + PATIENCE_MS;
  while (Date.now() < end) {
    const found = await consumer.receive(count, INVISIBLE_MS);
    if (found.length) return found;
  }
  throw new Error(`no message within ${PATIENCE_MS} ms`);
}

async function acknowledged(consumer, count) {
  const bodies = [];
  while (bodies.length < count) {
    for (const each of await receive(consumer, 32)) {
      bodies.push(text(each));
      await consumer.ack(each);
    }
  }
  return bodies;
}

function filtered(topic, expression) {
  return producing(topic, send => consuming(topic, expression, async consumer => {
    for (const [index, tag] of ['A', 'B', 'C', 'D'].entries()) {
      await send(tag, { tag, properties: new Map([['number', String(index + 1)]]) });
    }
    return list((await acknowledged(consumer, 2)).sort());
  }));
}

// Send one message, or two of a message group, and consume until `count` calls have been made.
async function pushed(topic, messageGroup, count, succeeds) {
  await producing(topic, async send => {
    for (const body of messageGroup ? ['first', 'second'] : ['first']) await send(body, { messageGroup });
  });
  const calls = [];
  let done;
  const finished = new Promise(resolve => { done = resolve; });
  const consumer = new PushConsumer({
    ...common,
    consumerGroup: `${topic}-group`,
    subscriptions: new Map([[topic, '*']]),
    messageListener: {
      async consume(message) {
        calls.push(`${text(message)} attempt ${message.deliveryAttempt}`);
        if (calls.length >= count) done();
        return succeeds(message) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
      },
    },
  });
  await consumer.startup();
  const timer = setTimeout(done, PATIENCE_MS);
  await finished;
  clearTimeout(timer);
  await consumer.shutdown();
  return list(calls);
}

async function sendAndReceive(topic) {
  await producing(topic, send =>
    send('hello', { tag: 'A', keys: ['k1', 'k2'], properties: new Map([['colour', 'red']]) }));
  return consuming(topic, '*', async consumer => {
    const [got] = await receive(consumer, 1);
    await consumer.ack(got);
    const properties = [...got.properties].sort().map(([key, value]) => `${key}=${value}`);
    return `${text(got)} ${got.tag} ${list(got.keys)} {${properties}} attempt ${got.deliveryAttempt}`;
  });
}

const steps = {
  send: () => sendAndReceive('node-send'),
  tags: () => filtered('node-tags', new FilterExpression('A || B')),
  sql92: () => filtered('node-sql92', new FilterExpression("number >= 2 AND TAGS <> 'D'", FilterType.SQL)),
  async fifo() {
    await producing('node-fifo', async send => {
      for (let i = 0; i < 6; i++) await send(String(i), { messageGroup: `g${i % 2}` });
    });
    return consuming('node-fifo', '*', async consumer => {
      const groups = { g0: [], g1: [] };
      for (let count = 0; count < 6; count++) {
        const [got] = await receive(consumer, 1);
        groups[got.messageGroup].push(text(got));
        await consumer.ack(got);
      }
      return `{g0=${list(groups.g0)}, g1=${list(groups.g1)}}`;
    });
  },
  delay: () => producing('node-delay', (send, producer) => consuming('node-delay', '*', async consumer => {
    const due = Date.now() + 4_000;
    const deliveryTimestamp = new Date(due);
    const recalled = await send('recalled', { deliveryTimestamp });
    await send('delivered', { deliveryTimestamp });
    const answer = await producer.recallMessage('node-delay', recalled.recallHandle);
    const bodies = await acknowledged(consumer, 1);
    const when = Date.now() < due - 1_000 ? 'early' : 'in time';
    return `${list(bodies)} ${when}, the recalled message has the same ID: ${answer.messageId === recalled.messageId}`;
  })),
  transaction() {
    const checked = [];
    const checker = {
      async check(message) {
        checked.push(text(message));
        return TransactionResolution.COMMIT;
      },
    };
    return producing('node-half', (send, producer) => consuming('node-half', '*', async consumer => {
      for (const body of ['committed', 'rolled back', 'forgotten']) {
        const begun = producer.beginTransaction();
        await send(body, {}, begun);
        if (body === 'committed') await begun.commit();
        if (body === 'rolled back') await begun.rollback();
      }
      return `${list((await acknowledged(consumer, 2)).sort())} checked ${list(checked)}`;
    }), checker);
  },
  invisible: () => producing('node-invisible', send => consuming('node-invisible', '*', async consumer => {
    await send('postponed');
    const [first] = await receive(consumer, 1);
    await consumer.changeInvisibleDuration(first, 1_000);
    const [again] = await receive(consumer, 1);
    await consumer.ack(again);
    return `${text(again)} attempts ${first.deliveryAttempt}, ${again.deliveryAttempt}`;
  })),
  push: () => pushed('node-push', undefined, 2, message => message.deliveryAttempt > 1),
  'fifo push': () => pushed('node-fifo-push', 'g', 2,
    message => text(message) !== 'first' || message.deliveryAttempt > 1),
  'dead letter': () => pushed('node-dead', 'g', 2, message => text(message) !== 'first'),
  tls: () => sendAndReceive('node-tls'),
  async 'wrong secret'() {
    common.sessionCredentials = { accessKey, accessSecret: 'wrong secret' };
    try {
      await producing('node-tls', send => send('hello', {}));
      return 'sent';
    } catch (error) {
      let cause = error;
      while (!cause.code && cause.cause) cause = cause.cause;
      return cause.code ? `${cause.constructor.name} ${cause.code}` : `broke off: ${error}`;
    }
  },
};

(async () => {
  for (const name of names) {
    let outcome;
    try {
      outcome = await steps[name]();
    } catch (error) {
      outcome = `broke off: ${error}`;
    }
    console.log(`OUTCOME ${name}: ${outcome.replaceAll('\n', ' ')}`);
  }
  process.exit(0);
})();
