// SPDX-License-Identifier: Apache-2.0

// ali-ons, a client of RocketMQ 4.x for Node, driven over standard input and output.  The
// commands are those of tests/interop/driver.py; each runs until it has to wait.

'use strict';

const readline = require('readline');
// Not beside this file: where the packages were put.
const { Consumer, Message, Producer } = require(require.resolve('ali-ons', { paths: [ process.argv[2] ] }));

const TIMEOUT = 10000;

const members = new Map();

function tell(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

// Standard output is for answers.
const logger = { debug() {}, info() {}, warn: console.error, error: console.error };

function options(command) {
  return {
    nameSrv: command.nameServers,
    instanceName: command.name,
    // It would ask for the name servers' addresses otherwise, and wants one anyway.
    httpclient: {},
    logger,
    // It does not listen when brokers tell it that members of a group came or went.
    rebalanceInterval: 1000,
    pullTimeDelayMillsWhenException: 1000,
  };
}

function read(given) {
  const message = new Message(given.topic, given.tags, Buffer.from(given.body, 'base64'));
  message.flag = given.flag || 0;
  if (given.keys) {
    message.keys = given.keys;
  }
  if (given.delay) {
    message.delayTimeLevel = given.delay;
  }
  Object.assign(message.properties, given.properties);
  return message;
}

function show(message) {
  const properties = Object.assign({}, message.properties);
  // What it makes of the end of all properties.
  delete properties[''];
  return {
    topic: message.topic,
    body: message.body.toString('base64'),
    flag: message.flag,
    tags: message.tags,
    keys: message.keys,
    properties,
    queueId: message.queueId,
    queueOffset: message.queueOffset,
    msgId: properties.UNIQ_KEY || message.originMessageId || message.msgId,
    offsetMsgId: message.msgId,
    sysFlag: message.sysFlag,
    bornTimestamp: message.bornTimestamp,
    storeTimestamp: message.storeTimestamp,
    storeSize: message.storeSize,
    reconsumeTimes: message.reconsumeTimes,
  };
}

function showResult(result) {
  return {
    status: result.sendStatus,
    // It gives messages no ids of its own.
    msgId: result.msgId,
    offsetMsgId: result.msgId,
    queueId: Number(result.messageQueue.queueId),
    queueOffset: result.queueOffset,
  };
}

async function produce(command) {
  const producer = new Producer(Object.assign(options(command), {
    producerGroup: command.group,
    sendMsgTimeout: TIMEOUT,
  }));
  producer.on('error', console.error);
  members.set(command.name, producer);
  await producer.ready();
}

async function send(command) {
  const producer = members.get(command.name);
  const messages = command.messages.map(read);
  if (command.how === 'async') {
    return (await Promise.all(messages.map(each => producer.send(each)))).map(showResult);
  }
  const results = [];
  for (const each of messages) {
    if (command.how === 'selector') {
      each.shardingKey = command.key;
    }
    results.push(showResult(await producer.send(each)));
  }
  return results;
}

async function consume(command) {
  const consumer = new Consumer(Object.assign(options(command), {
    consumerGroup: command.group,
    isBroadcast: command.broadcast,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    maxReconsumeTimes: command.maxReconsumeTimes || 16,
  }));
  consumer.on('error', console.error);
  members.set(command.name, consumer);
  for (const each of command.subscriptions) {
    const expression = each.type === 'SQL92'
      ? { expressionType: 'SQL92', subString: each.expression } : each.expression;
    consumer.subscribe(each.topic, expression, async message => {
      tell({ to: command.name, message: show(message) });
      // Not ACTION_RETRY, which it does not look at when a message has come again.
      if (message.reconsumeTimes < Number(message.properties.failTimes || 0)) {
        throw new Error('told to fail');
      }
    });
  }
  await consumer.ready();
}

async function stop(command) {
  const member = members.get(command.name);
  members.delete(command.name);
  await member.close();
}

const commands = { producer: produce, consumer: consume, send, stop };

readline.createInterface({ input: process.stdin }).on('line', async line => {
  const command = JSON.parse(line);
  try {
    const result = await commands[command.op](command);
    tell({ id: command.id, result: result === undefined ? null : result });
  } catch (error) {
    console.error(error);
    tell({ id: command.id, error: String(error) });
  }
}).on('close', () => process.exit());
