// kafkajs: the admin client, a group that goes on where it stopped, and transactions.
import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import kafkajs from 'kafkajs'

const { Kafka, logLevel } = kafkajs
const kafka = new Kafka({ brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING })
const run = randomUUID().slice(0, 8)
const topic = `kafkajs-${run}`
let failed = 0

async function check (name, work) {
  try {
    await work()
    console.log(`PASS ${name}`)
  } catch (error) {
    failed = 1
    console.log(`FAIL ${name}: ${error.message}`)
  }
}

function equal (found, wanted) {
  if (!isDeepStrictEqual(found, wanted)) throw new Error(`found ${JSON.stringify(found)}, wanted ${JSON.stringify(wanted)}`)
}

async function read (groupId, count) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10000, rebalanceTimeout: 5000 })
  const values = []
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`read ${values.length} of ${count} records`)), 40000)
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ message, partition }) => {
        if (values.length === count) return
        values.push(message.value.toString())
        await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
        if (values.length === count) { clearTimeout(timer); resolve() }
      }
    })
  })
  await consumer.disconnect()
  return values
}

const numbers = (begin, end) => Array.from({ length: end - begin }, (_, index) => String(begin + index))

await check('create a topic', async () => {
  const admin = kafka.admin()
  await admin.connect()
  equal(await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true }), true)
  equal((await admin.listTopics()).includes(topic), true)
  await admin.disconnect()
})
await check('an idempotent producer', async () => {
  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  await producer.send({ topic, messages: numbers(0, 10).map(value => ({ value, headers: { h: '1' } })) })
  await producer.disconnect()
})
await check('a group reads and commits', async () => equal(await read(`kafkajs-${run}`, 5), numbers(0, 5)))
await check('the group goes on where it stopped', async () => equal(await read(`kafkajs-${run}`, 5), numbers(5, 10)))
await check('transactions, of which one is aborted', async () => {
  const producer = kafka.producer({ transactionalId: `txn-${run}`, maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  for (const end of ['commit', 'abort', 'commit']) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ value: end }] })
    await transaction[end]()
  }
  await producer.disconnect()
  equal((await read(`committed-${run}`, 12)).slice(10), ['commit', 'commit'])
})
process.exit(failed)
